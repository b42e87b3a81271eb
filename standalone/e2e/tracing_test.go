package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/tracing/tracingtest"
)

// A delivery is one trace, from the caller of the API to the receiver, with its retries; and nothing
// secret is in it.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	in := ownInstance(t, settings{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL(), "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_SERVICE_NAME": "everpost-e2e"})
	b, r := newBundle(t, in, in.client(), tenantName(t.Name())), newReceiver(t)
	markers := map[string]string{"payload": "canarypayload1", "query": "canaryquery1", "path": "canarypath1",
		"header": "canaryheader1", "answer": "canaryanswer1"}
	wanted := "/" + markers["path"] + "?token=" + markers["query"]
	b.endpoint(r, wanted, fieldsOf{"event_types": []string{"traced"}, "trace_context": true, "headers": fieldsOf{"X-Api-Key": markers["header"]}})
	b.endpoint(r, "/silent", fieldsOf{"event_types": []string{"silent"}})
	r.Script("/"+markers["path"], receivertest.Step{Status: 503, Body: markers["answer"]})

	const caller = "00f067aa0ba902b7"
	post := func(kind, traceID string) delivery {
		t.Helper()
		var e event
		b.ask(http.StatusAccepted, http.MethodPost, "/events", `{"type":"`+kind+`","payload":"`+markers["payload"]+`"}`, &e,
			"traceparent", "00-"+traceID+"-"+caller+"-01")
		require.Len(t, e.Deliveries, 1)
		return b.waitState(e.Deliveries[0].ID, "delivered")
	}

	const retried = "4bf92f3577b34da6a3ce929d0e0e4736"
	d := post("traced", retried)
	api := collector.Await(t, retried, "POST /v1/tenants/{tenant}/events", 1)[0]
	require.Equal(t, []string{caller, "everpost-e2e", "postEvent"}, []string{api.ParentID, api.Service, api.Attributes["everpost.operation"]})
	require.Equal(t, api.SpanID, collector.Await(t, retried, "commit events", 1)[0].ParentID)
	start := collector.Await(t, retried, "start workflow", 1)[0]
	require.Equal(t, api.SpanID, start.ParentID)
	workflow := collector.Await(t, retried, "workflow", 1)[0]
	require.Equal(t, []string{start.SpanID, d.ID}, []string{workflow.ParentID, workflow.Attributes["everpost.delivery.id"]})
	attempts, posts := collector.Await(t, retried, "attempt", 2), collector.Await(t, retried, "POST", 2)
	require.Contains(t, []string{api.SpanID, workflow.SpanID}, attempts[0].ParentID, "the first is eager, or of the workflow")
	require.Equal(t, workflow.SpanID, attempts[1].ParentID)
	require.Equal(t, []string{"503", "200"}, []string{posts[0].Attributes["http.response.status_code"], posts[1].Attributes["http.response.status_code"]})
	for i, request := range r.Requests() {
		require.Equal(t, attempts[i].SpanID, posts[i].ParentID)
		require.Equal(t, []string{"00-" + retried + "-" + posts[i].SpanID + "-01"}, request.Header.Values("traceparent"))
	}

	const atOnce = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	post("silent", atOnce)
	require.Empty(t, r.Requests()[2].Header.Values("traceparent"), "the endpoint did not ask for it")
	start = collector.Await(t, atOnce, "start workflow", 1)[0]
	require.Equal(t, start.SpanID, collector.Await(t, atOnce, "workflow", 1)[0].ParentID)
	collector.Await(t, atOnce, "POST", 1)

	require.Contains(t, collector.Raw(), d.ID, "the search finds what is there")
	markers["key"] = in.key
	requireNoMarker(t, "the spans", collector.Raw(), markers)
}
