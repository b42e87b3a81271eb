package openapitest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) {
	checks := "12" // requests for each operation; the command line overrides it
	if os.Getenv("EVERPOST_TEST_LONG") != "" {
		checks = "100"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(postgrestest.Main(m))
}

const (
	operatorKey = "an operator key for tests, long enough"
	own         = "acme"
	foreign     = "other"
)

// document is the API's OpenAPI document.
var document = sync.OnceValue(func() *openapitest.Document {
	text, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
	if err != nil {
		panic(err)
	}
	d, err := openapitest.Parse(text)
	if err != nil {
		panic(err)
	}
	return d
})

// world is a real API on a real PostgreSQL with two tenants and keys of every kind. There
// is no Temporal: tests write what a worker would write.
type world struct {
	*testing.T

	url     string
	http    *http.Client
	store   *stores.DB
	address string            // of the database
	keys    map[string]string // operator, admin, ingest, expired, revoked; "none" is ""
	hook    string            // a receiver's URL
	made    atomic.Int64

	admin string // address of the admin listener of the process that was started last
}

func setup(t *testing.T, flags ...string) *world {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	w := &world{T: t, address: postgrestest.New(t), hook: receiver.URL + "/hook"}
	w.http = &http.Client{Transport: &openapitest.Transport{Document: document(), Base: base}}
	w.url = w.start(flags...)

	var err error
	w.store, err = stores.Open(t.Context(), stores.Config{URL: w.address, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(w.store.Close)
	for _, tenant := range []string{own, foreign} {
		_, _, err := w.store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: tenant})
		require.NoError(t, err)
	}
	w.keys = map[string]string{
		"operator": operatorKey, "none": "",
		"admin": w.key(webhook.ScopeAdmin, time.Time{}), "ingest": w.key(webhook.ScopeIngest, time.Time{}),
		"expired": w.key(webhook.ScopeAdmin, time.Now().Add(-time.Second)), "revoked": w.key(webhook.ScopeAdmin, time.Time{}),
	}
	id, _, err := api.ParseKey(w.keys["revoked"])
	require.NoError(t, err)
	w.ok(http.StatusOK, "revoked", "GET", "/v1/tenants/"+own, "") // so that it is cached when it is revoked
	w.ok(http.StatusNoContent, "admin", "DELETE", "/v1/tenants/"+own+"/keys/"+id.String(), "")
	return w
}

// start starts an API on the database and returns its address.
func (w *world) start(flags ...string) string {
	w.Helper()
	var settings config.Config
	defaults, err := kong.New(&settings)
	require.NoError(w, err)
	_, err = defaults.Parse(append([]string{
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--database-url=" + w.address, "--operator-key=" + operatorKey,
		"--kek=K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=", "--allow-http", "--allowed-cidrs=127.0.0.0/8", "--extra-ports=any",
		"--queue-length=100000",
		"--tenant-other-requests-per-second=0", "--tenant-running-replays=0", // a test makes many with one key
	}, flags...))
	require.NoError(w, err)
	a, err := app.New(w.Context(), app.Options{
		Config: settings, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), API: true, Temporal: client.Options{HostPort: closedPort(w.T)},
	})
	require.NoError(w, err)
	require.NoError(w, a.Start(w.Context()))
	w.Cleanup(a.Stop)
	w.admin = "http://" + a.AdminAddr()
	return "http://" + a.APIAddr()
}

// another starts a second process on the same database.
func (w *world) another() *world {
	w.Helper()
	return &world{T: w.T, url: w.start(), http: w.http, store: w.store, address: w.address, keys: w.keys, hook: w.hook}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// key creates a key of the tenant acme.
func (w *world) key(scope webhook.Scope, expires time.Time) string {
	w.Helper()
	id := webhook.NewKeyID()
	text, sum := api.NewKey(id)
	require.NoError(w, w.store.Keys.CreateKey(w.Context(), webhook.Actor{Name: "test"}, webhook.Key{
		ID: id, TenantID: own, Scope: scope, SHA256: sum, CreatedAt: time.Now().UTC(), ExpiresAt: expires,
	}))
	return text
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	text   string
}

// into decodes the response.
func (a answer) into(t *testing.T, target any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), target), a.text)
}

// field returns a field of the response.
func (a answer) field(t *testing.T, name string) string {
	t.Helper()
	var fields map[string]any
	a.into(t, &fields)
	value, ok := fields[name].(string)
	require.True(t, ok, "%s in %s", name, a.text)
	return value
}

// do sends a request with the key of that name; headers are given as name, value, …. The
// transport checks the response against the document.
func (w *world) do(as, method, path, body string, header ...string) answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w, err)
	if key := w.keys[as]; key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := w.http.Do(r)
	require.NoError(w, err, "%s %s as %s", method, path, as)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	return answer{response.StatusCode, response.Header, string(text)}
}

// ok is do for a request that must get the status.
func (w *world) ok(status int, as, method, path, body string, header ...string) answer {
	w.Helper()
	a := w.do(as, method, path, body, header...)
	require.Equal(w, status, a.status, "%s %s as %s: %s", method, path, as, a.text)
	return a
}

// make creates the object of an operation for a tenant and returns its id: a new one each
// time, in a state that permits the operation.
func (w *world) make(tenant string, o openapitest.Operation) string {
	w.Helper()
	base := "/v1/tenants/" + tenant
	switch strings.Split(o.Path, "/")[4] {
	case "keys":
		return w.ok(http.StatusCreated, "operator", "POST", base+"/keys", `{"scope":"ingest"}`).field(w.T, "id")
	case "endpoints":
		id := w.endpoint(tenant)
		if o.ID == "resumeEndpoint" {
			w.ok(http.StatusOK, "operator", "POST", base+"/endpoints/"+id+"/pause", "")
		}
		if o.ID == "updateRelease" {
			w.ok(http.StatusOK, "operator", "POST", base+"/endpoints/"+id+"/pause", "")
			w.ok(http.StatusOK, "operator", "POST", base+"/endpoints/"+id+"/resume", "")
		}
		if o.ID == "closeEndpointCircuit" { // like a worker
			parsed, err := webhook.ParseEndpointID(id)
			require.NoError(w, err)
			seen := map[webhook.EndpointID]webhook.Observation{parsed: {Circuit: webhook.CircuitOpen}}
			require.NoError(w, w.store.EndpointHealth.WriteObservations(w.Context(), id, seen))
		}
		return id
	case "events":
		event, delivery := w.event(tenant)
		if o.ID == "eraseEventPayload" {
			w.giveUp(tenant, delivery)
		}
		return event
	case "deliveries", "dead-letters":
		_, delivery := w.event(tenant)
		if strings.HasPrefix(o.Path, "/v1/tenants/{tenant}/dead-letters") || o.ID == "replayDelivery" {
			w.giveUp(tenant, delivery)
		}
		return delivery
	case "replays":
		id := w.ok(http.StatusAccepted, "operator", "POST", base+"/replays", `{"source":"dead_letters"}`).field(w.T, "id")
		if o.ID == "resumeReplay" {
			w.ok(http.StatusAccepted, "operator", "POST", base+"/replays/"+id+"/pause", "")
		}
		return id
	}
	require.FailNow(w, "there is no way to make what this is about", o.Path)
	return ""
}

// eventType creates an event type of the catalogue and returns its name: a new one each time.
func (w *world) eventType() string {
	w.Helper()
	name := fmt.Sprintf("made.%d", w.made.Add(1))
	w.ok(http.StatusCreated, "operator", "PUT", "/v1/event-types/"+name, `{}`)
	return name
}

func (w *world) endpoint(tenant string) string {
	w.Helper()
	return w.ok(http.StatusCreated, "operator", "POST", "/v1/tenants/"+tenant+"/endpoints", `{"url":"`+w.hook+`","event_types":["never"]}`).field(w.T, "id")
}

// event posts an event for one endpoint, due in an hour.
func (w *world) event(tenant string) (event, delivery string) {
	w.Helper()
	at := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
	a := w.ok(http.StatusAccepted, "operator", "POST", "/v1/tenants/"+tenant+"/events",
		fmt.Sprintf(`{"type":"order.paid","payload":1,"deliver_at":%q,"endpoint_ids":[%q]}`, at, w.endpoint(tenant)))
	var posted struct {
		ID         string
		Deliveries []struct{ ID string }
	}
	a.into(w.T, &posted)
	return posted.ID, posted.Deliveries[0].ID
}

// giveUp turns a delivery into a dead letter, like a worker.
func (w *world) giveUp(tenant, delivery string) {
	w.Helper()
	id, err := webhook.ParseDeliveryID(delivery)
	require.NoError(w, err)
	known, err := w.store.Deliveries.Delivery(w.Context(), tenant, id)
	require.NoError(w, err)
	tried := &webhook.Attempt{
		Number: 1, Run: 1, StartedAt: time.Now().UTC().Truncate(time.Microsecond), Latency: time.Millisecond,
		Outcome: retry.Outcome{Decision: retry.Permanent, Reason: retry.HTTPReason(http.StatusBadRequest), Status: http.StatusBadRequest},
	}
	_, err = w.store.Deliveries.RecordStep(w.Context(), webhook.Step{
		Ref: known.Ref, Attempt: tried, WorkflowID: known.WorkflowID,
		Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDeadLettered, Attempts: 1, RunAttempts: 1, GiveUpAt: known.GiveUpAt, Reason: "http_400"},
	})
	require.NoError(w, err)
}

// body returns the example of an operation's request body, "" when it has none, with ids of
// the tenant and a new external id.
func (w *world) body(o openapitest.Operation, tenant string) string {
	w.Helper()
	if o.ID == "putTenant" {
		return `{"name":"Acme"}` // the example's limits would affect other tests
	}
	if o.ID == "putInstallationNotifications" {
		return `{"channels":[]}` // the example needs a mail server
	}
	d := document()
	media := d.In(o, "requestBody", "content", "application/json")
	example := d.Of(media, "example")
	if named, ok := d.Of(media, "examples").(map[string]any); ok {
		example = d.Of(named["usual"], "value")
	}
	if example == nil {
		return ""
	}
	text, err := json.Marshal(example)
	require.NoError(w, err)
	if sample := []byte("ep_06f4q2m0hhf5dd6cs7m9k2q8xw"); bytes.Contains(text, sample) {
		text = bytes.ReplaceAll(text, sample, []byte(w.endpoint(tenant)))
	}
	text = bytes.ReplaceAll(text, []byte("https://example.com/hook"), []byte(w.hook))
	return strings.ReplaceAll(string(text), "order-17-paid", fmt.Sprintf("order-%d-paid", w.made.Add(1)))
}

// scopeOf returns the documented scope of an operation; open operations need none.
func scopeOf(t *testing.T, o openapitest.Operation) (scope webhook.Scope, open bool) {
	t.Helper()
	text, _ := document().In(o, "description").(string)
	word, _, _ := strings.Cut(text, ".")
	switch {
	case document().In(o, "security") != nil:
		return 0, true
	case slices.Contains([]string{"Any key", "Ingest"}, word):
		return webhook.ScopeIngest, false
	case word == "Admin":
		return webhook.ScopeAdmin, false
	case word == "Operator":
		return webhook.ScopeOperator, false
	}
	require.FailNow(t, "the description does not begin with the scope", o.ID)
	return 0, false
}
