package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const exportPath = "/v1/tenants/acme/export"

// exported are the lines of an export, by kind.
func exported(t *testing.T, text string) map[string][]map[string]any {
	t.Helper()
	lines := map[string][]map[string]any{}
	for line := range strings.Lines(text) {
		var one struct {
			Kind string         `json:"kind"`
			Data map[string]any `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		lines[one.Kind] = append(lines[one.Kind], one.Data)
	}
	return lines
}

// ids are the different values of a field.
func ids(lines []map[string]any, field string) map[any]bool {
	found := map[any]bool{}
	for _, line := range lines {
		found[line[field]] = true
	}
	return found
}

// post posts an event to the endpoints that there are.
func (b *bundle) post(t *testing.T) {
	t.Helper()
	b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":{"order":17}}`)
}

// Every row is exported once, also those of further pages, and nothing of another tenant.
func TestExport(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const many = 2*exportPage + 1
	b.endpoint(t)
	for range many {
		b.post(t)
	}
	first := b.deliveries[0]
	for n := range many {
		b.attempts[first.DeliveryID] = append(b.attempts[first.DeliveryID], webhook.Attempt{
			Number: n + 1, Run: 1, StartedAt: testNow(), Outcome: retry.Outcome{Decision: retry.Retry, Reason: "http_503", Status: 503},
		})
	}
	b.events[0].Payload = []byte("{ \"order\":\n17.10 }")
	b.events[0].Headers, b.accepted[0].Event.HeaderSize = map[string]string{"X-Region": "eu"}, 17
	b.accepted[0].Event.Tags = []string{"order:17"}
	b.accepted[1].Event.Removed = webhook.PayloadRemoval{At: testNow(), Reason: webhook.PayloadErased}
	large := []byte(`"` + strings.Repeat("x", 200<<10) + `"`) // so that several reads are needed
	for i := range 20 {
		b.events[2+i].Payload, b.accepted[2+i].Event.PayloadSize = large, len(large)
	}
	b.accepted[many-1].Event.TenantID, b.deliveries[many-1].TenantID = "other", "other"

	a := b.ok(t, http.StatusOK, "admin", "GET", exportPath, "")
	require.Equal(t, contentNDJSON, a.Header.Get("Content-Type"))
	lines := exported(t, a.text)
	end := lines["end"][0]
	delete(lines, "end")
	for kind, of := range lines {
		require.EqualValues(t, len(of), end[kind], kind)
	}
	require.Len(t, lines, len(end))
	require.Equal(t, "acme", lines["tenant"][0]["id"])
	require.Len(t, ids(lines["endpoint"], "id"), len(b.endpoints))
	require.Len(t, lines["endpoint"], len(b.endpoints))
	for kind, field := range map[string]string{"event": "id", "delivery": "id", "attempt": "number"} {
		want := many - 1
		if kind == "attempt" {
			want = many
		}
		require.Len(t, lines[kind], want, kind)
		require.Len(t, ids(lines[kind], field), want, kind)
	}
	require.Equal(t, map[any]bool{first.DeliveryID.String(): true}, ids(lines["attempt"], "delivery_id"))
	require.Contains(t, a.text, `"payload":{"order":17.10}`, "without white space, and the number as it was written")
	require.Contains(t, a.text, `"tags":["order:17"],"headers":{"X-Region":"eu"},`)
	require.Equal(t, 1, strings.Count(a.text, `"tags"`))
	require.Equal(t, 20, strings.Count(a.text, string(large)))
	for _, e := range lines["event"] {
		require.Equal(t, e["payload_removed"] != nil, e["payload"] == nil, e)
	}
	require.NotContains(t, a.text, "whsec_")
	require.NotContains(t, a.text, "evk_")
	admin, _, err := ParseKey(b.keys["admin"])
	require.NoError(t, err)
	require.Equal(t, admin, b.actors[len(b.actors)-1].KeyID, "it is in the audit log")

	b.ok(t, http.StatusForbidden, "ingest", "GET", exportPath, "")
	b.ok(t, http.StatusNotFound, "foreign", "GET", exportPath, "")
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/export", "")
}

// The audit log names the addresses and the keys of operators, which a tenant does not get. It gets its own keys.
func TestExportedOperators(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entry := webhook.AuditEntry{
		ID: webhook.NewAuditID(), At: testNow(), By: webhook.Actor{Source: netip.MustParseAddr("192.0.2.1"), KeyID: webhook.NewKeyID(), Name: "Jo"},
		TenantID: "acme", Action: "tenant.update", Subject: "acme", Detail: []byte(`{}`),
	}
	for as, shown := range map[string]map[bool]bool{"operator": {true: true, false: true}, "admin": {true: true, false: false}} {
		for byTenant, named := range shown {
			entry.ByTenant = byTenant
			b.audit = []webhook.AuditEntry{entry}
			got := exported(t, b.ok(t, http.StatusOK, as, "GET", exportPath, "").text)["audit"][0]
			want := map[string]any{"source_address": any(nil), "key_id": any(nil), "actor": any(nil)}
			if as == "operator" {
				want["source_address"] = "192.0.2.1"
			}
			if named {
				want["key_id"], want["actor"] = entry.By.KeyID.String(), "Jo"
			}
			for field, value := range want {
				require.Equal(t, value, got[field], "%s as %s, of the tenant: %t", field, as, byTenant)
			}
		}
	}
}

// What is refused for the moment is read again; a payload that is erased meanwhile is not exported.
func TestExportReadsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	b.post(t)
	reads := 0
	b.exportRead = func() error {
		reads++
		if reads < 3 {
			return &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: time.Millisecond}
		}
		b.accepted[0].Event.Removed = webhook.PayloadRemoval{At: testNow(), Reason: webhook.PayloadErased}
		return nil
	}
	lines := exported(t, b.ok(t, http.StatusOK, "admin", "GET", exportPath, "").text)
	require.Equal(t, 3, reads)
	require.Nil(t, lines["event"][0]["payload"])
	require.NotNil(t, lines["event"][0]["payload_removed"])
	require.Len(t, lines["end"], 1)
}

// After a failure in the middle the response breaks off, and has no last line.
func TestExportThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	for range exportPage + 1 {
		b.post(t)
	}
	reads := 0
	b.exportRead = func() error {
		reads++
		if reads == 2 {
			return errors.New("a fault for the test")
		}
		return nil
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = b.server.HTTPServer(b.server.Handler())
	server.Start()
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+exportPath, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+b.keys["admin"])
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotContains(t, string(text), `"kind":"end"`)
	server.Close() // waits for the handler
	require.Contains(t, b.log.String(), "a fault for the test")
}

// A tenant has one export at a time, a process four. One ends when its client goes away.
func TestExportsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	b.post(t)
	b.tenants["four"] = webhook.Tenant{ID: "four", CreatedAt: testNow(), UpdatedAt: testNow()}
	reading := make(chan struct{}, 1)
	b.exportRead = func() error {
		select {
		case reading <- struct{}{}:
		default:
		}
		return &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: time.Hour}
	}
	began := make(chan context.CancelFunc, 1)
	go func() {
		ctx, cancel := context.WithCancel(t.Context())
		began <- cancel
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, exportPath, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+b.keys["admin"])
		defer func() { _ = recover() }() // it is aborted
		b.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}()
	cancel := <-began
	<-reading
	a := b.ok(t, http.StatusTooManyRequests, "operator", "GET", exportPath, "")
	require.Contains(t, a.json["detail"], "an export of this tenant is under way")

	for _, id := range []string{"one", "two"} { // as if they were under way in other requests
		_, err := b.server.handlers.exports.underWay.begin(id, webhook.ScopeAdmin)
		require.NoError(t, err)
	}
	_, err := b.server.handlers.exports.underWay.begin("three", webhook.ScopeAdmin)
	require.ErrorContains(t, err, "3 exports are under way", "the last place is an operator's")
	_, err = b.server.handlers.exports.underWay.begin("three", webhook.ScopeOperator)
	require.NoError(t, err)
	a = b.ok(t, http.StatusTooManyRequests, "operator", "GET", "/v1/tenants/four/export", "")
	require.Contains(t, a.json["detail"], "4 exports are under way")
	require.NotEmpty(t, a.Header.Get("Retry-After"))

	cancel() // the client goes away
	require.Eventually(t, func() bool {
		b.server.handlers.exports.underWay.mu.Lock()
		defer b.server.handlers.exports.underWay.mu.Unlock()
		return !b.server.handlers.exports.underWay.running["acme"]
	}, 10*time.Second, time.Millisecond)
	b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants/four/export", "")
}

// The export of a client that accepts nothing ends.
func TestExportToAStalledClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := &stalled{ResponseRecorder: httptest.NewRecorder()}
	to := newPacedWriter(out)
	x := &export{out: bufio.NewWriter(to), to: to, counts: map[string]int{}}
	require.NoError(t, x.line("tenant", showTenant(b.tenants["acme"])))
	x.ctx, x.Context = t.Context(), b.server.echo.NewContext(nil, out)
	require.NoError(t, x.flush())
	require.WithinDuration(t, time.Now().Add(answerGrace), out.deadline, 10*time.Second)
}

type stalled struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

func (s *stalled) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}
