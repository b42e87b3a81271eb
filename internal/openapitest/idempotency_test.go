package openapitest_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Repeated requests, also concurrent ones, create one event. Each response says whether it
// is a repetition, or asks for a retry.
func TestIdempotencyOverHTTP(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, c := range map[string]struct {
		path, body, other string
		header            []string
	}{
		"external_id": {
			"/events", `{"type":"a.b","payload":1,"external_id":"one"}`, `{"type":"a.b","payload":2,"external_id":"one"}`, nil,
		},
		"Idempotency-Key": {
			"/events", `{"type":"a.b","payload":1}`, `{"type":"a.b","payload":2}`, []string{"Idempotency-Key", "two"},
		},
		"Idempotency-Key of a batch": {
			"/events/batch", `{"events":[{"type":"a.b","payload":1},{"type":"a.c","payload":1}]}`, `{"events":[{"type":"a.b","payload":1}]}`,
			[]string{"Idempotency-Key", "three"},
		},
	} {
		answers := make([]answer, 16)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = w.do("ingest", "POST", acme+c.path, c.body, c.header...) })
		}
		all.Wait()
		first, fresh := "", 0
		for _, a := range answers {
			if a.status == http.StatusConflict {
				require.Contains(t, a.text, "under way", name)
				continue
			}
			require.Equal(t, http.StatusAccepted, a.status, "%s: %s", name, a.text)
			if a.header.Get("Idempotent-Replayed") == "" {
				fresh++
			}
			if first == "" {
				first = a.text
			}
			require.Equal(t, first, a.text, "%s: all have the same answer", name)
		}
		require.Equal(t, 1, fresh, "%s: one of them is new", name)

		again := w.ok(http.StatusAccepted, "ingest", "POST", acme+c.path, c.body, c.header...)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), name)
		require.Equal(t, first, again.text, name)
		refused := w.ok(http.StatusUnprocessableEntity, "ingest", "POST", acme+c.path, c.other, c.header...)
		require.Equal(t, "https://everpost.dev/errors/idempotency-mismatch", refused.field(t, "type"), name)
		elsewhere := w.ok(http.StatusAccepted, "operator", "POST", "/v1/tenants/"+foreign+c.path, c.other, c.header...)
		require.Empty(t, elsewhere.header.Get("Idempotent-Replayed"), "%s: another tenant's keys are its own", name)
	}
	var list struct{ Data []struct{ ID string } }
	w.ok(http.StatusOK, "ingest", "GET", acme+"/events", "").into(t, &list)
	require.Len(t, list.Data, 4)
}

// A request's id is the caller's if it is suitable for a log. It is in every response and
// in the audit log.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.ok(http.StatusOK, "operator", "PUT", acme, `{}`, "X-Request-Id", "trace-1/2+3")
	require.Equal(t, "trace-1/2+3", a.header.Get("X-Request-Id"))
	var list struct {
		Data []struct {
			Request string `json:"request_id"`
		}
	}
	w.ok(http.StatusOK, "operator", "GET", "/v1/audit?tenant=acme&action=tenant.replace&limit=1", "").into(t, &list)
	require.Equal(t, "trace-1/2+3", list.Data[0].Request)

	seen := map[string]bool{}
	for i, given := range []string{"", "with space", "ü", "<script>", fmt.Sprintf("%0129d", 0)} {
		a := w.ok(http.StatusNotFound, "operator", "GET", acme+"/endpoints/none", "", "X-Request-Id", given)
		id := a.header.Get("X-Request-Id")
		require.Equal(t, id, a.field(t, "request_id"))
		require.NotEqual(t, given, id)
		require.Len(t, id, 26)
		seen[id] = true
		require.Len(t, seen, i+1, "each has its own")
	}
}
