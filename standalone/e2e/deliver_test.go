package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/workflows"
)

// oddPayload is JSON that must not be re-serialised: spaces, escapes, number forms, the order of names.
const oddPayload = `{"b" : 1.10, "a":"\u00e4\/ä😀",  "n":[1e2, -0.0 ,null], "":{ } }`

// atOnceIs is less than the time after which the relay takes up what was left behind:
// what takes longer was not delivered in the ordinary way.
const atOnceIs = deliveries.RelayAfter - time.Second

// requireAtOnce requires that what began at a time took less than atOnceIs. While Temporal does not answer, as on a machine without a free core,
// the relay does it later; then the instance has logged that.
func (b *bundle) requireAtOnce(began time.Time, took time.Duration, message string) {
	b.t.Helper()
	if took >= atOnceIs && b.in.temporalWasAway(began, began.Add(took)) {
		b.t.Logf("it took %s, because Temporal was away", took)
		return
	}
	require.Less(b.t, took, atOnceIs, message)
}

// temporalWasAway reports whether a process has logged between two times that Temporal was away, or is back.
func (in *instance) temporalWasAway(from, to time.Time) bool {
	text, err := os.ReadFile(in.logPath)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var entry struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Time.After(from) && entry.Time.Before(to) &&
			(strings.HasPrefix(entry.Msg, "Temporal does not answer, or cannot write") || entry.Msg == "Temporal can be written to again") {
			return true
		}
	}
	return false
}

func TestDelivered(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook?token=a%20b&x=1", fieldsOf{"event_types": []string{"order.*"}, "headers": fieldsOf{"X-Own": "mine"}})
	began := time.Now()
	e, d := b.postOne("order.paid", oddPayload)
	require.Equal(t, "pending", d.State)
	require.Equal(t, ep.ID, d.EndpointID)

	d = b.waitState(d.ID, "delivered")
	require.Equal(t, 1, r.Count())
	request := r.Requests()[0]
	b.requireAtOnce(began, request.ReceivedAt.Sub(began), "by its own start, not by the relay")
	require.Equal(t, http.MethodPost, request.Method)
	require.Equal(t, oddPayload, string(request.Body), "byte for byte")
	sent, err := strconv.ParseInt(request.Header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.WithinRange(t, time.Unix(sent, 0), began.Truncate(time.Second), time.Now())
	require.Regexp(t, `^Everpost/\S+$`, request.Header.Get("User-Agent"))
	require.Regexp(t, `^v1,[A-Za-z0-9+/]{43}=$`, request.Header.Get("webhook-signature"))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Own": "mine", "webhook-id": e.ID,
		"everpost-attempt": "1", "everpost-event-type": "order.paid", "everpost-delivery-id": d.ID,
	} {
		require.Equal(t, []string{want}, request.Header.Values(name), name)
	}

	require.Nil(t, d.Reason)
	require.Equal(t, 1, d.Attempts)
	require.Equal(t, "order.paid", d.EventType)
	require.Equal(t, []any{"delivered", "delivered", 200}, []any{string(d.LastOutcome.Decision), d.LastOutcome.Reason, *d.LastOutcome.Status})
	require.False(t, d.CompletedAt.IsZero())
	require.True(t, d.NextAttemptAt.IsZero())
	if !strings.HasPrefix(d.WorkflowID, "fanout/") { // which it shares when it waits together with another test's
		require.Equal(t, workflowID(d), d.WorkflowID)
	}
	require.Equal(t, b.in.uiPath()+url.PathEscape(d.WorkflowID), d.WorkflowURL)

	attempts := b.attempts(d.ID)
	require.Len(t, attempts, 1)
	a := attempts[0]
	require.Equal(t, []any{1, 1, 200, "delivered"}, []any{a.Number, *a.Run, *a.Status, string(a.Decision)})
	require.Nil(t, a.DelaySource)
	require.Equal(t, e.ID, a.RequestHeaders["webhook-id"])
	require.NotContains(t, a.RequestHeaders["X-Own"], "mine", "an endpoint's own headers may be credentials")

	payload := b.ask(http.StatusOK, http.MethodGet, "/events/"+e.ID+"/payload", nil, nil)
	require.Equal(t, oddPayload, string(payload.body))
}

func TestWorkflowIsVisibleInTemporal(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	e, d := b.postOne("order.paid", `{}`)
	d = b.waitState(d.ID, "delivered")
	ctx, engine := contextFor(t, patience), b.in.temporal(t)

	b.awaitWorkflow(ctx, engine, d.WorkflowID)
	described, err := engine.DescribeWorkflow(ctx, d.WorkflowID, "")
	require.NoError(t, err)
	if workflows.IsShared(d.WorkflowID) { // it waited together with another test's
		ids, ok := described.TypedSearchAttributes.GetKeywordList(temporal.NewSearchAttributeKeyKeywordList("EventIds"))
		require.True(t, ok)
		require.Contains(t, ids, e.ID)
		eventually(ctx, t, func() string {
			if slices.Contains(workflowsBy(ctx, t, engine, "EventIds = '"+e.ID+"'"), d.WorkflowID) {
				return ""
			}
			return "no workflow is found by EventIds"
		})
		return
	}
	require.Equal(t, "DeliveryWorkflow", described.WorkflowType.Name)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, described.Status)
	for name, want := range map[string]string{"TenantId": b.tenant, "EndpointId": ep.ID, "EventType": "order.paid", "EventId": e.ID} {
		got, ok := described.TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(name))
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
		// ... and it can be searched for: the visibility store follows a moment later.
		eventually(ctx, t, func() string {
			found := workflowsBy(ctx, t, engine, name+" = '"+want+"' and EventId = '"+e.ID+"'")
			if len(found) == 1 && found[0] == d.WorkflowID {
				return ""
			}
			return "no workflow is found by " + name
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Script("/hook", receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "1"}, Body: "busy"})
	b.endpoint(r, "/hook", nil)
	e, d := b.postOne("order.paid", `{}`)
	d = b.waitState(d.ID, "delivered")
	require.Equal(t, 2, d.Attempts)

	attempts, requests := b.attempts(d.ID), r.of(e.ID)
	require.Len(t, attempts, 2)
	require.Len(t, requests, 2)
	first := attempts[0]
	require.Equal(t, []any{1, 1, 503, "retry", "http_503", "busy"},
		[]any{first.Number, *first.Run, *first.Status, string(first.Decision), first.Reason, first.ResponseBody})
	require.NotNil(t, first.DelaySource)
	require.Equal(t, "retry_after", *first.DelaySource, "it is longer than the policy's 500 ms")
	require.NotNil(t, first.RetryAfterMS)
	require.EqualValues(t, 1000, *first.RetryAfterMS)
	require.GreaterOrEqual(t, requests[1].ReceivedAt.Sub(requests[0].ReceivedAt), time.Second)
	require.Equal(t, "2", requests[1].Header.Get("everpost-attempt"))
	require.Equal(t, "2", attempts[1].RequestHeaders["everpost-attempt"])
}

func TestSlowReceiverGetsOneRequest(t *testing.T) {
	t.Parallel()
	needsStandalone(t, knownAtOnce)
	for name, during := range map[string]func(*bundle, delivery){
		"undisturbed":                 func(*bundle, delivery) {},
		"retry-now by hand during it": func(b *bundle, d delivery) { b.signal(workflowID(d), "retry-now", nil) },
		"several signals during it": func(b *bundle, d delivery) {
			for range 5 {
				b.signal(workflowID(d), "retry-now", "please")
				b.signal(workflowID(d), "discard", nil)
			}
		},
		"cancel by API during it: delivered wins": func(b *bundle, d delivery) { b.command(http.StatusAccepted, d.ID, "cancel", nil) },
		"cancel by hand during it":                func(b *bundle, d delivery) { b.signal(workflowID(d), "cancel", nil) },
		"workflow cancelled during it": func(b *bundle, d delivery) {
			b.byHand(func(ctx context.Context, engine client.Client) error {
				return engine.CancelWorkflow(ctx, workflowID(d), "")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r := setup(t), newReceiver(t)
			r.Default(receivertest.Step{Delay: 4 * time.Second}) // time for ten signals
			b.endpoint(r, "/hook", nil)
			e, d := b.postOne("order.paid", `{}`)
			d.EventID = e.ID
			ctx := contextFor(t, patience)
			_, err := r.WaitFor(ctx, 1)
			require.NoError(t, err)
			during(b, d)

			d = b.waitState(d.ID, "delivered")
			b.awaitWorkflow(ctx, b.in.temporal(t), d.WorkflowID) // it has ended: nothing comes after it
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, 1, r.Count(), "exactly one request")
			require.Contains(t, historiesOf(ctx, t, b.in.temporal(t), d.WorkflowID), `"check_at"`, "its answer was looked for, not waited for in the task")
		})
	}
}

func TestDeliverAt(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	due := time.Now().Add(3 * time.Second)
	e, d := b.postOne("order.paid", `{}`, "deliver_at", strconv.Quote(due.UTC().Format(time.RFC3339Nano)))
	require.WithinDuration(t, due, e.DeliverAt.Time, time.Microsecond)
	b.waitState(d.ID, "delivered")
	require.Equal(t, 1, r.Count())
	arrived := r.Requests()[0].ReceivedAt
	require.Greater(t, arrived, due.Add(-100*time.Millisecond), "not before its time")
	b.requireAtOnce(due, arrived.Sub(due), "and not long after it")
}

func TestDeliverAtIsTakenForwardByRetry(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	_, d := b.postOne("order.paid", `{}`, "deliver_at", strconv.Quote(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	b.waitScheduled(d.ID)
	require.Zero(t, r.Count())
	b.command(http.StatusAccepted, d.ID, "retry", nil)
	b.waitState(d.ID, "delivered")
	require.Equal(t, 1, r.Count())
}

func TestFanOut(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	for _, path := range []string{"/one", "/two", "/three"} {
		b.endpoint(r, path, fieldsOf{"event_types": []string{"order.*"}})
	}
	b.endpoint(r, "/other", fieldsOf{"event_types": []string{"invoice.paid"}})
	r.Script("/two", receivertest.Step{Status: 500})
	e := b.post("order.paid", `{"n":1}`)
	require.Equal(t, 3, e.Matched)
	require.Nil(t, e.Reason)
	require.Len(t, e.Deliveries, 3)
	for _, d := range e.Deliveries {
		b.waitState(d.ID, "delivered")
	}
	seen := map[string]int{}
	for _, request := range r.of(e.ID) {
		seen[request.Path]++
	}
	require.Equal(t, map[string]int{"/one": 1, "/two": 2, "/three": 1}, seen)
	var read event
	b.ask(http.StatusOK, http.MethodGet, "/events/"+e.ID, nil, &read)
	require.Len(t, read.Deliveries, 3)
}

func TestEventThatNobodyWants(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"event_types": []string{"invoice.*"}})
	e := b.post("order.paid", `{"n":1}`)
	require.Zero(t, e.Matched)
	require.Empty(t, e.Deliveries)
	require.NotNil(t, e.Reason)
	require.Equal(t, "no_matching_endpoint", *e.Reason)
	var read event
	b.ask(http.StatusOK, http.MethodGet, "/events/"+e.ID, nil, &read)
	require.Equal(t, "no_matching_endpoint", text(read.Reason), "it is stored, with the reason")
	require.Equal(t, `{"n":1}`, string(b.ask(http.StatusOK, http.MethodGet, "/events/"+e.ID+"/payload", nil, nil).body))
	require.Zero(t, r.Count())
}
