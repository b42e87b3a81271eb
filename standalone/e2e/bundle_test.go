package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
)

const (
	tick     = 25 * time.Millisecond // between two looks at a condition
	patience = 60 * time.Second      // for what takes a moment on an idle machine
)

// contextFor ends with the test, or after d.
func contextFor(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually repeats missing until it returns "". When the context ends, it fails with what was missing last: what a look says that was cut
// short by that end is no reason.
func eventually(ctx context.Context, t *testing.T, missing func() string) {
	t.Helper()
	var lack string
	for {
		now := missing()
		if now == "" {
			return
		}
		if lack == "" || ctx.Err() == nil {
			lack = now
		}
		select {
		case <-ctx.Done():
			require.FailNow(t, "a condition was not met in time", lack)
		case <-time.After(tick):
		}
	}
}

// hasTime reports whether make test-long runs.
func hasTime() bool { return os.Getenv("EVERPOST_TEST_LONG") != "" }

// needsTime leaves a test to make test-long.
func needsTime(t *testing.T, why string) {
	t.Helper()
	if !hasTime() {
		t.Skip(why + ": set EVERPOST_TEST_LONG")
	}
}

// bundle is a tenant of a test's own on an instance.
type bundle struct {
	t      *testing.T
	in     *instance
	client *apiClient
	tenant string
}

// awaitWorkflow waits until a workflow has been started and has ended. That of a delivery whose first request was
// eager is started after it was delivered.
func (b *bundle) awaitWorkflow(ctx context.Context, engine client.Client, id string) {
	b.t.Helper()
	eventually(ctx, b.t, func() string {
		if err := engine.GetWorkflow(ctx, id, "").Get(ctx, nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

// setup is a tenant on the shared instance.
func setup(t *testing.T) *bundle {
	t.Helper()
	in := shared(t)
	in.showLog(t)
	return newBundle(t, in, in.client(), tenantName(t.Name()))
}

func (in *instance) client() *apiClient {
	return &apiClient{base: in.addr["api"], key: in.key, http: in.http}
}

func newBundle(t *testing.T, in *instance, d *apiClient, tenant string) *bundle {
	t.Helper()
	b := &bundle{t: t, in: in, client: d, tenant: tenant}
	b.ask(http.StatusCreated, http.MethodPut, "", fieldsOf{"name": t.Name()}, nil)
	return b
}

// tenants counts the tenants, so that each is new, whatever the test is called.
var tenants atomic.Int64

// tenantName makes a new tenant's id of a test's name.
func tenantName(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, test)
	return fmt.Sprintf("t%d-%.50s", tenants.Add(1), name)
}

// path is an address below the tenant.
func (b *bundle) path(rest string) string { return "/v1/tenants/" + b.tenant + rest }

// ask calls, requires the status, and decodes the answer into target unless it is nil.
func (b *bundle) ask(status int, method, rest string, body, target any, header ...string) answer {
	b.t.Helper()
	got, err := b.client.call(contextFor(b.t, patience), method, b.path(rest), body, header...)
	require.NoError(b.t, err)
	require.Equal(b.t, status, got.status, "%s %s: %s", method, rest, got.body)
	if target != nil {
		require.NoError(b.t, got.into(target))
	}
	return got
}

// receiver is one that has every request's signature checked at the end of the test.
type receiver struct {
	*receivertest.Receiver

	mu      sync.Mutex
	secrets map[string]string // by path and query
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{Receiver: receivertest.New(t), secrets: map[string]string{}}
	t.Cleanup(func() {
		if err := r.verify(); err != nil {
			t.Errorf("a request that a receiver would refuse: %v", err)
		}
	})
	return r
}

// verify checks all requests so far.
func (r *receiver) verify() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := r.Requests()
	if forgotten := r.Count() - len(requests); forgotten != 0 {
		return fmt.Errorf("%d requests were forgotten before they were verified", forgotten)
	}
	for _, request := range requests {
		secret, known := r.secrets[request.Path]
		if !known {
			return fmt.Errorf("request %d went to %s, where no endpoint is", request.Number, request.Path)
		}
		if err := request.Verify(secret); err != nil {
			return err
		}
	}
	return nil
}

// of are the requests of one event.
func (r *receiver) of(eventID string) []receivertest.Request {
	var of []receivertest.Request
	for _, request := range r.Requests() {
		if request.WebhookID() == eventID {
			of = append(of, request)
		}
	}
	return of
}

// quickly is a policy for tests: half a second between attempts, five of them.
func quickly() fieldsOf {
	return fieldsOf{"strategy": "fixed", "base": "500ms", "jitter": "none", "max_attempts": 5}
}

// patiently is a policy after which a delivery that failed once waits for an hour.
func patiently() fieldsOf {
	return fieldsOf{"strategy": "fixed", "base": "1h", "cap": "1h", "jitter": "none", "max_attempts": 5}
}

// endpoint makes an endpoint for a path of the receiver. Its policy is quickly
// unless the fields say otherwise.
func (b *bundle) endpoint(r *receiver, path string, further fieldsOf) endpoint {
	b.t.Helper()
	fields := fieldsOf{"url": r.URL() + path, "retry_policy": quickly()}
	maps.Copy(fields, further)
	var made endpoint
	b.ask(http.StatusCreated, http.MethodPost, "/endpoints", fields, &made)
	require.NotEmpty(b.t, made.Secret)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets[path] = made.Secret
	return made
}

// post posts an event and requires that it is accepted. The payload is JSON text.
func (b *bundle) post(kind, payload string, further ...string) event {
	b.t.Helper()
	var fields strings.Builder
	for i := 0; i < len(further); i += 2 {
		fmt.Fprintf(&fields, ",%q:%s", further[i], further[i+1])
	}
	var made event
	b.ask(http.StatusAccepted, http.MethodPost, "/events", fmt.Sprintf(`{"type":%q,"payload":%s%s}`, kind, payload, fields.String()), &made)
	return made
}

// postOne is post for an event to which exactly one endpoint subscribes.
func (b *bundle) postOne(kind, payload string, further ...string) (event, delivery) {
	b.t.Helper()
	e := b.post(kind, payload, further...)
	require.Equal(b.t, 1, e.Matched)
	require.Len(b.t, e.Deliveries, 1)
	return e, e.Deliveries[0]
}

func (b *bundle) delivery(id string) delivery {
	b.t.Helper()
	var d delivery
	b.ask(http.StatusOK, http.MethodGet, "/deliveries/"+id, nil, &d)
	return d
}

// attempts are a delivery's attempts, oldest first.
func (b *bundle) attempts(id string) []attempt {
	b.t.Helper()
	var all page[attempt]
	b.ask(http.StatusOK, http.MethodGet, "/deliveries/"+id+"/attempts", nil, &all)
	require.Empty(b.t, all.NextCursor)
	slices.Reverse(all.Data) // lists are newest first
	return all.Data
}

// command sends a command to a delivery and requires the status.
func (b *bundle) command(status int, id, command string, body any) answer {
	b.t.Helper()
	return b.ask(status, http.MethodPost, "/deliveries/"+id+"/"+command, body, nil)
}

// waitState waits until the delivery is in the state and returns it.
func (b *bundle) waitState(id, state string) delivery {
	b.t.Helper()
	return b.waitStateIn(contextFor(b.t, patience), id, state)
}

func (b *bundle) waitStateIn(ctx context.Context, id, state string) delivery {
	b.t.Helper()
	var d delivery
	eventually(ctx, b.t, func() string {
		d = b.delivery(id)
		if d.State == state {
			return ""
		}
		return fmt.Sprintf("delivery %s is %s (reason %s, last error %s) after %d attempts, not %s",
			id, d.State, text(d.Reason), text(d.LastError), d.Attempts, state)
	})
	return d
}

// listDeliveries pages through all deliveries that the query selects.
func (b *bundle) listDeliveries(query url.Values) []delivery {
	b.t.Helper()
	var all []delivery
	query.Set("limit", "250")
	for {
		var p page[delivery]
		b.ask(http.StatusOK, http.MethodGet, "/deliveries?"+query.Encode(), nil, &p)
		all = append(all, p.Data...)
		if p.NextCursor == "" {
			return all
		}
		query.Set("cursor", p.NextCursor)
	}
}

// allDelivered waits until every delivery of the tenant is delivered, and checks
// that those of the given events are among them and reached the receiver.
func (b *bundle) allDelivered(ctx context.Context, r *receiver, eventIDs []string) {
	b.t.Helper()
	eventually(ctx, b.t, func() string {
		for _, d := range b.listDeliveries(url.Values{"state": {"pending", "retrying", "held"}}) {
			return fmt.Sprintf("delivery %s of %s is %s after %d attempts (last error %s)", d.ID, d.EventID, d.State, d.Attempts, text(d.LastError))
		}
		return ""
	})
	states := map[string]string{}
	for _, d := range b.listDeliveries(url.Values{}) {
		states[d.EventID] = d.State
	}
	arrived := map[string]bool{}
	for _, request := range r.Requests() {
		arrived[request.WebhookID()] = true
	}
	for _, id := range eventIDs {
		require.Equal(b.t, "delivered", states[id], "event %s was acknowledged", id)
		require.True(b.t, arrived[id], "event %s was acknowledged and never arrived", id)
	}
}

func text(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
