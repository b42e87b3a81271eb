package api

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/webhook"
)

// bundle is an API over memory with the tenants acme and other and a key of every kind.
type bundle struct {
	*memory

	server *Server
	log    *bytes.Buffer
	keys   map[string]string // operator, admin, ingest (of acme), foreign (admin of other)
}

func testNow() time.Time { return time.Date(2026, 1, 31, 9, 30, 0, 123456000, time.UTC) }

// setup makes a bundle. with changes its configuration.
func setup(t *testing.T, with ...func(*Config)) *bundle {
	t.Helper()
	b := &bundle{memory: newMemory(testNow), log: &bytes.Buffer{}, keys: map[string]string{}}
	config := Config{
		Tenants: b, Keys: b, Endpoints: b, EndpointSecrets: b, Events: b, Erasures: b, Exports: b, Deliveries: b,
		EndpointSwitch: b, Releases: b, Notifications: b, Health: b, Circuits: b, Tests: b, Replays: b,
		ReplayCounts: b, DeadLetterGroups: b, Starter: b, URLs: b, Audit: b, Limits: b, TenantUpdates: b, TenantDeletions: b,
		EventTypes: b, EventTypeChanges: b, EventTypeImports: b,
		Attention: b, Situations: b, Engine: b, ConsoleLinks: b,
		Statistics:  b,
		RequestKeys: b,
		Logger:      slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		WorkflowURL: func(id string) string { return "http://ui.example/" + url.PathEscape(id) },
		Now:         testNow,
	}
	for _, change := range with {
		change(&config)
	}
	b.server = New(config)
	t.Cleanup(b.server.Close)
	for _, id := range []string{"acme", "other"} {
		b.tenants[id] = webhook.Tenant{ID: id, CreatedAt: testNow(), UpdatedAt: testNow()}
	}
	for name, k := range map[string]webhook.Key{
		"operator": {Scope: webhook.ScopeOperator},
		"admin":    {Scope: webhook.ScopeAdmin, TenantID: "acme"},
		"ingest":   {Scope: webhook.ScopeIngest, TenantID: "acme"},
		"foreign":  {Scope: webhook.ScopeAdmin, TenantID: "other"},
	} {
		k.ID, k.CreatedAt = webhook.NewKeyID(), testNow()
		b.keys[name], k.SHA256 = NewKey(k.ID)
		b.memory.keys = append(b.memory.keys, k)
	}
	return b
}

// answer is a response, with the body decoded if it is JSON.
type answer struct {
	*http.Response

	text string
	json map[string]any
}

// do sends a request and checks the response against the OpenAPI document. as names a key of the
// bundle, "" for none. Options change the request before it is sent.
func (b *bundle) do(t *testing.T, as, method, path, body string, options ...func(*http.Request)) answer {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+b.keys[as])
	}
	r.Header.Set("X-Request-Id", "req-1")
	for _, option := range options {
		option(r)
	}
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)

	a := answer{Response: w.Result(), text: w.Body.String()}
	require.NoError(t, a.Body.Close())
	if strings.Contains(a.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal([]byte(a.text), &a.json) // a payload may be any JSON value
	}
	require.NoError(t, document().Check(openapitest.Answer{
		Method: method, Path: r.URL.EscapedPath(), Status: a.StatusCode, Header: a.Header, Body: w.Body.Bytes(),
	}))
	return a
}

// ok is do for a request that must have the status.
func (b *bundle) ok(t *testing.T, status int, as, method, path, body string, options ...func(*http.Request)) answer {
	t.Helper()
	a := b.do(t, as, method, path, body, options...)
	require.Equal(t, status, a.StatusCode, "%s %s: %s", method, path, a.text)
	return a
}

// refused is do for a request that must have status 400 and exactly these errors, as field, message,
// field, message, ….
func (b *bundle) refused(t *testing.T, as, method, path, body string, want ...string) {
	t.Helper()
	a := b.ok(t, http.StatusBadRequest, as, method, path, body)
	require.Equal(t, want, fieldsOf(t, a), path+" "+body)
}

func fieldsOf(t *testing.T, a answer) []string {
	t.Helper()
	var p client.Problem
	require.NoError(t, json.Unmarshal([]byte(a.text), &p))
	var got []string
	for _, f := range p.Errors {
		got = append(got, f.Place(), f.Message)
	}
	return got
}

// endpoint creates an endpoint of acme and returns its id.
func (b *bundle) endpoint(t *testing.T) string {
	t.Helper()
	a := b.ok(t, http.StatusCreated, "admin", "POST", "/v1/tenants/acme/endpoints", `{"url":"https://example.com/hook"}`)
	return a.json["id"].(string)
}

// posted posts an event of acme for one endpoint and returns the event's and the delivery's id.
func (b *bundle) posted(t *testing.T) (event, delivery string) {
	t.Helper()
	b.endpoint(t)
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"order.paid","payload":{"order":17}}`)
	return a.json["id"].(string), a.json["deliveries"].([]any)[0].(map[string]any)["id"].(string)
}

// document returns the OpenAPI document, parsed once.
var document = sync.OnceValue(func() *openapitest.Document {
	d, err := openapitest.Parse(openAPISource)
	if err != nil {
		panic(err)
	}
	return d
})

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// unsized hides the length of the body, as in a chunked request.
func unsized(r *http.Request) {
	r.ContentLength = -1
	r.Body = io.NopCloser(r.Body)
}
