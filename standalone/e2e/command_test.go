package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
)

// workflowID is the id that 30-engine promises.
func workflowID(d delivery) string {
	id := "delivery/" + d.EventID + "/" + d.EndpointID
	if d.Run > 1 {
		id += "/" + strconv.Itoa(d.Run)
	}
	return id
}

// signal sends a signal by hand, as someone at the Web UI would; nil is no input at all.
func (b *bundle) signal(workflow, name string, input any) {
	b.t.Helper()
	b.byHand(func(ctx context.Context, engine client.Client) error {
		return engine.SignalWorkflow(ctx, workflow, "", name, input)
	})
}

// byHand does something to a workflow as soon as it is there: a delivery may make its
// first attempt in a shared one before it gets its own.
func (b *bundle) byHand(do func(context.Context, client.Client) error) {
	b.t.Helper()
	ctx, engine := contextFor(b.t, patience), b.in.temporal(b.t)
	eventually(ctx, b.t, func() string {
		err := do(ctx, engine)
		if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
			return err.Error()
		}
		require.NoError(b.t, err)
		return ""
	})
}

// workflowsBy are the ids of the workflows that a visibility query finds.
func workflowsBy(ctx context.Context, t *testing.T, engine client.Client, query string) []string {
	t.Helper()
	found, err := engine.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: 100})
	require.NoError(t, err)
	var ids []string
	for _, e := range found.GetExecutions() {
		ids = append(ids, e.GetExecution().GetWorkflowId())
	}
	return ids
}

// waitScheduled waits until the delivery's workflow waits for a time.
func (b *bundle) waitScheduled(id string) delivery {
	b.t.Helper()
	var d delivery
	eventually(contextFor(b.t, patience), b.t, func() string {
		if d = b.delivery(id); !d.NextAttemptAt.IsZero() && d.WorkflowID != "" {
			return ""
		}
		return "the delivery waits for no time; it is " + d.State
	})
	return d
}

// waiting is a delivery that failed once and waits for an hour.
func waiting(t *testing.T) (*bundle, *receiver, delivery) {
	t.Helper()
	b, r := setup(t), newReceiver(t)
	r.Script("/hook", receivertest.Step{Status: 500})
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently()})
	// A delivery that is scheduled when its workflow is started shares it with none of other tests.
	_, d := b.postOne("order.paid", `{}`, "deliver_at", strconv.Quote(at(time.Now().Add(time.Hour))))
	d = b.waitScheduled(d.ID)
	b.holds(d)
	b.command(http.StatusAccepted, d.ID, "retry", nil)
	d = b.waitState(d.ID, "retrying")
	require.Equal(t, workflowID(d), d.WorkflowID)
	return b, r, d
}

// deadLettered is a delivery that was refused permanently; a second try would succeed.
func deadLettered(t *testing.T) (*bundle, *receiver, delivery) {
	t.Helper()
	b, r := setup(t), newReceiver(t)
	r.Script("/hook", receivertest.Step{Status: 400})
	b.endpoint(r, "/hook", nil)
	_, d := b.postOne("order.paid", `{"n":1}`)
	d = b.waitState(d.ID, "dead_lettered")
	b.holds(d)
	return b, r, d
}

func TestPermanentThenReplayed(t *testing.T) {
	t.Parallel()
	b, r, d := deadLettered(t)
	require.Equal(t, "http_400", text(d.Reason))
	require.Equal(t, 1, r.Count(), "no second attempt after a permanent answer")
	var letters page[delivery]
	b.ask(http.StatusOK, http.MethodGet, "/dead-letters?reason=http_400&status=400", nil, &letters)
	require.Len(t, letters.Data, 1)
	require.Equal(t, d.ID, letters.Data[0].ID)

	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+d.ID+"/replay", fieldsOf{"reason": "fixed"}, nil)
	d = b.waitState(d.ID, "delivered")
	require.Equal(t, []int{2, 2}, []int{d.Run, d.Attempts})
	require.Nil(t, d.Reason)
	attempts := b.attempts(d.ID)
	require.Len(t, attempts, 2)
	require.Equal(t, []int{1, 1, 2, 2}, []int{attempts[0].Number, *attempts[0].Run, attempts[1].Number, *attempts[1].Run})
	requests := r.of(d.EventID)
	require.Len(t, requests, 2, "both carry the event's id")
	require.Equal(t, requests[0].Body, requests[1].Body)
	require.Equal(t, "2", requests[1].Header.Get("everpost-attempt"))
	b.ask(http.StatusOK, http.MethodGet, "/dead-letters", nil, &letters)
	require.Empty(t, letters.Data)
	b.ask(http.StatusConflict, http.MethodPost, "/dead-letters/"+d.ID+"/replay", nil, nil)
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	b, r, d := deadLettered(t)
	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+d.ID+"/discard", fieldsOf{"reason": "not needed"}, nil)
	d = b.waitState(d.ID, "discarded")
	require.Equal(t, "not needed", text(d.Reason))
	var refused problem
	b.ask(http.StatusConflict, http.MethodPost, "/dead-letters/"+d.ID+"/discard", nil, &refused)
	require.Equal(t, "discarded", refused.State)
	require.Equal(t, 1, r.Count())
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b, r, d := waiting(t)
	b.command(http.StatusAccepted, d.ID, "cancel", fieldsOf{"reason": "ordered by mistake"})
	b.command(http.StatusAccepted, d.ID, "cancel", nil) // repeating it is fine, whether or not it has been carried out
	d = b.waitState(d.ID, "cancelled")
	require.False(t, d.CompletedAt.IsZero())
	require.Equal(t, 1, r.Count())

	b.command(http.StatusAccepted, d.ID, "replay", nil) // a cancelled one can be sent again
	b.waitState(d.ID, "delivered")
	var refused problem
	require.NoError(t, b.command(http.StatusConflict, d.ID, "cancel", nil).into(&refused))
	require.Equal(t, "delivered", refused.State)
}

func TestRetryNow(t *testing.T) {
	t.Parallel()
	b, r, d := waiting(t)
	b.command(http.StatusAccepted, d.ID, "retry", nil)
	d = b.waitState(d.ID, "delivered")
	require.Equal(t, 2, d.Attempts)
	require.Equal(t, 2, r.Count())
	b.command(http.StatusConflict, d.ID, "retry", nil)
}

func TestReplayOfADeliveredOne(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	e, d := b.postOne("order.paid", oddPayload)
	d = b.waitState(d.ID, "delivered")
	b.command(http.StatusAccepted, d.ID, "replay", nil)
	eventually(contextFor(t, patience), t, func() string {
		if d = b.delivery(d.ID); d.State == "delivered" && d.Run == 2 {
			return ""
		}
		return "the second run is " + d.State
	})
	require.Equal(t, 2, d.Attempts)
	requests := r.of(e.ID)
	require.Len(t, requests, 2)
	require.Equal(t, oddPayload, string(requests[1].Body))
	require.Equal(t, "2", requests[1].Header.Get("everpost-attempt"))
}

// asked is the input of a signal, written from the contract.
type asked struct {
	Reason string `json:"reason"`
}

func TestSignalsByHand(t *testing.T) {
	t.Parallel()
	inputs := []struct {
		name   string
		input  any
		reason string // "" is the command's own word
	}{{"nothing", nil, ""}, {"an object", asked{"as asked"}, "as asked"}, {"a text", "in words", "in words"}}
	for _, c := range []struct {
		signal string
		given  func(*testing.T) (*bundle, *receiver, delivery)
		state  string
		reason string // of the end when none is given; "" for an end without one
	}{
		{"cancel", waiting, "cancelled", "cancelled"},
		{"retry-now", waiting, "delivered", ""},
		{"replay", deadLettered, "delivered", ""},
		{"discard", deadLettered, "discarded", "discarded"},
	} {
		for _, in := range inputs {
			t.Run(c.signal+" with "+in.name, func(t *testing.T) {
				t.Parallel()
				b, r, d := c.given(t)
				b.signal(d.WorkflowID, c.signal, in.input)
				d = b.waitState(d.ID, c.state)
				requests := 2
				if c.reason != "" {
					want := c.reason
					if in.reason != "" {
						want = in.reason
					}
					require.Equal(t, want, text(d.Reason))
					requests = 1
				}
				require.Equal(t, requests, r.Count())
			})
		}
	}
}

func TestCancellingTheWorkflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		given func(*testing.T) (*bundle, *receiver, delivery)
		state string
	}{{"cancels a delivery", waiting, "cancelled"}, {"discards a dead letter", deadLettered, "discarded"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, r, d := c.given(t)
			require.NoError(t, b.in.temporal(t).CancelWorkflow(contextFor(t, patience), d.WorkflowID, ""))
			b.waitState(d.ID, c.state)
			require.Equal(t, 1, r.Count())
		})
	}
}

func TestDeletedEndpointCancelsItsDeliveries(t *testing.T) {
	t.Parallel()
	b, r, d := waiting(t)
	b.ask(http.StatusNoContent, http.MethodDelete, "/endpoints/"+d.EndpointID, nil, nil)
	d = b.waitState(d.ID, "cancelled")
	require.Equal(t, "endpoint_deleted", text(d.Reason))
	require.Equal(t, 1, r.Count())
	b.ask(http.StatusNotFound, http.MethodGet, "/endpoints/"+d.EndpointID, nil, nil)
}

func TestDeletedEndpointKeepsItsDeadLetters(t *testing.T) {
	t.Parallel()
	b, r, d := deadLettered(t)
	b.ask(http.StatusNoContent, http.MethodDelete, "/endpoints/"+d.EndpointID, nil, nil)
	require.Equal(t, "dead_lettered", b.delivery(d.ID).State, "readable")
	b.ask(http.StatusConflict, http.MethodPost, "/dead-letters/"+d.ID+"/replay", nil, nil)
	require.Equal(t, 1, r.Count())
}

func execution(workflow string) *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: workflow}
}

// An event is cancelled in all its open deliveries by their workflows, and is then found by when that was.
func TestCancelEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newReceiver(t)
	r.Script("/down", receivertest.Step{Status: http.StatusServiceUnavailable})
	policy := fieldsOf{"strategy": "fixed", "base": "1h", "jitter": "none"}
	down := b.endpoint(r, "/down", fieldsOf{"retry_policy": policy})
	b.endpoint(r, "/up", nil)
	e := b.post("order.paid", `{"order":17}`)
	require.Len(t, e.Deliveries, 2)
	states := map[string]string{}
	for _, d := range e.Deliveries {
		states[d.ID] = "delivered"
		if d.EndpointID == down.ID {
			states[d.ID] = "retrying"
		}
		b.waitState(d.ID, states[d.ID])
	}
	var made struct {
		Cancelled int `json:"cancelled"`
	}
	b.ask(http.StatusAccepted, http.MethodPost, "/events/"+e.ID+"/cancel", fieldsOf{"reason": "a mistake"}, &made)
	require.Equal(t, 1, made.Cancelled)
	for id, state := range states {
		if state == "retrying" {
			require.NotZero(t, b.waitState(id, "cancelled").CompletedAt)
		} else {
			require.Equal(t, "delivered", b.delivery(id).State, "what has ended stays as it is")
		}
	}
	require.Len(t, b.listDeliveries(url.Values{"event_id": {e.ID}, "ended_since": {"1h"}, "state": {"cancelled"}}), 1)
	require.Empty(t, b.listDeliveries(url.Values{"event_id": {e.ID}, "ended_until": {"1h"}}))
	var attempts struct {
		Data []struct {
			DeliveryID string `json:"delivery_id"`
		} `json:"data"`
	}
	b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+down.ID+"/attempts", nil, &attempts)
	require.Len(t, attempts.Data, 1)
	require.Equal(t, "retrying", states[attempts.Data[0].DeliveryID])
}
