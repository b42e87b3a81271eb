package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

type replay struct {
	ID          string     `json:"id"`
	State       string     `json:"state"`
	StateReason *string    `json:"state_reason"`
	Total       int        `json:"total"`
	Released    int        `json:"released"`
	Skipped     int        `json:"skipped"`
	Delivered   int        `json:"delivered"`
	Failed      int        `json:"failed"`
	Rate        int        `json:"rate_per_minute"`
	CurrentRate int        `json:"current_rate_per_minute"`
	CompletedAt *time.Time `json:"completed_at"`
	WorkflowID  string     `json:"workflow_id"`
}

// replayPatience is for a replay of some hundreds.
const replayPatience = 2 * time.Minute

func (b *bundle) makeReplay(fields fieldsOf) replay {
	b.t.Helper()
	var r replay
	b.ask(http.StatusAccepted, http.MethodPost, "/replays", fields, &r)
	return r
}

// waitReplay waits until a replay is as it should be; missing says what it lacks.
func (b *bundle) waitReplay(ctx context.Context, id, what string, there func(replay) bool) replay {
	b.t.Helper()
	var r replay
	eventually(ctx, b.t, func() string {
		b.ask(http.StatusOK, http.MethodGet, "/replays/"+id, nil, &r)
		if there(r) {
			return ""
		}
		return fmt.Sprintf("the replay is not %s: %+v, %s", what, r, text(r.StateReason))
	})
	return r
}

func (b *bundle) waitReplayState(id, state string) replay {
	b.t.Helper()
	return b.waitReplay(contextFor(b.t, replayPatience), id, state, func(r replay) bool { return r.State == state })
}

// unguarded are the settings of an endpoint that may fail as often as it likes.
func unguarded() fieldsOf {
	return fieldsOf{"auto_disable": false, "circuit_breaker": fieldsOf{"enabled": false}}
}

// manyDeadLetters posts n events to an endpoint whose receiver refuses all, and
// returns their ids when all deliveries are dead letters.
func (b *bundle) manyDeadLetters(r *receiver, n int) []string {
	b.t.Helper()
	r.Default(receivertest.Step{Status: http.StatusBadRequest})
	ids := make([]string, n)
	var posters sync.WaitGroup
	for p := range 4 {
		posters.Go(func() {
			for i := p; i < n; i += 4 {
				var e event
				got, err := b.client.call(b.t.Context(), http.MethodPost, b.path("/events"), `{"type":"order.paid","payload":{}}`)
				if err == nil && got.status == http.StatusAccepted && got.into(&e) == nil {
					ids[i] = e.ID
				}
			}
		})
	}
	posters.Wait()
	require.NotContains(b.t, ids, "", "all were accepted")
	eventually(contextFor(b.t, replayPatience), b.t, func() string {
		if dead := len(b.listDeliveries(url.Values{"state": {"dead_lettered"}})); dead < n {
			return fmt.Sprintf("%d of %d are dead letters", dead, n)
		}
		return ""
	})
	return ids
}

// The whole of it: 300 dead letters of an endpoint that was repaired, paused, resumed
// and killed on the way. Nothing is left out, and nothing is released twice.
func TestReplayOfAnOutage(t *testing.T) {
	t.Parallel()
	const many = 300
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	ep := b.endpoint(r, "/hook", unguarded())
	ids := b.manyDeadLetters(r, many)
	r.Default(receivertest.Step{})

	made := b.makeReplay(fieldsOf{"source": "dead_letters", "endpoint_id": ep.ID, "rate_per_minute": 3000})
	require.Equal(t, many, made.Total)
	require.Equal(t, "replay/"+made.ID, made.WorkflowID)
	ctx := contextFor(t, replayPatience)
	b.waitReplay(ctx, made.ID, "under way", func(r replay) bool { return r.Released >= 40 })
	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/pause", nil, nil)
	paused := b.waitReplayState(made.ID, "paused")
	require.Equal(t, "paused by a person", text(paused.StateReason))
	require.Less(t, paused.Released, many)
	b.waitReplay(ctx, made.ID, "at rest", func(r replay) bool { return r.Delivered+r.Failed == r.Released })
	require.Equal(t, many+paused.Released, r.Count(), "nothing is released past the pause")

	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/resume", nil, nil)
	b.waitReplay(ctx, made.ID, "under way again", func(r replay) bool { return r.Released >= paused.Released+40 })
	in.kill9()
	in.restart(t)
	b.client = in.client()
	done := b.waitReplay(contextFor(t, longRecovery), made.ID, "completed", func(r replay) bool { return r.State == "completed" })
	require.NotNil(t, done.CompletedAt)
	require.Equal(t, []int{many, many, 0, many, 0}, []int{done.Total, done.Released, done.Skipped, done.Delivered, done.Failed})

	b.allDelivered(contextFor(t, longRecovery), r, ids)
	for _, d := range b.listDeliveries(url.Values{}) {
		require.Equal(t, 2, d.Run, "released once")
	}
	twice := r.Count() - 2*many
	require.Less(t, twice, 60, "only requests that were under way at the kill are made again")
	t.Logf("%d requests were under way when it was killed", twice)

	var p problem
	require.NoError(t, b.ask(http.StatusConflict, http.MethodPost, "/replays/"+made.ID+"/pause", nil, nil).into(&p))
	require.Equal(t, "completed", p.State)
	var all page[replay]
	b.ask(http.StatusOK, http.MethodGet, "/replays", nil, &all)
	require.Equal(t, []replay{done}, all.Data)
	require.NoError(t, in.temporal(t).GetWorkflow(contextFor(t, patience), made.WorkflowID, "").Get(t.Context(), nil))
}

// A receiver that is still unhealthy gets no more than a sample.
func TestReplayPausesItself(t *testing.T) {
	t.Parallel()
	const many = 100
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", unguarded())
	b.manyDeadLetters(r, many)
	made := b.makeReplay(fieldsOf{"source": "dead_letters", "rate_per_minute": 300})
	paused := b.waitReplayState(made.ID, "paused")
	require.Regexp(t, `^paused: (\d+) of (\d+) first attempts failed$`, text(paused.StateReason))
	require.Less(t, paused.Released, many)
	r.Default(receivertest.Step{})
	b.ask(http.StatusAccepted, http.MethodPatch, "/replays/"+made.ID, fieldsOf{"rate_per_minute": 6000}, nil)
	b.ask(http.StatusAccepted, http.MethodPost, "/replays/"+made.ID+"/resume", nil, nil)
	done := b.waitReplayState(made.ID, "completed")
	require.Equal(t, []int{many, many, 6000, 6000}, []int{done.Total, done.Released, done.Rate, done.CurrentRate})
	require.Equal(t, many, done.Delivered+done.Failed)
	require.Len(t, b.listDeliveries(url.Values{"state": {"dead_lettered"}}), done.Failed, "they are dead letters again, and not replayed twice")
}

// Signals by hand, as the Web UI sends them: without an input.
func TestReplayByHand(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	b.manyDeadLetters(r, 20)
	r.Default(receivertest.Step{})
	made := b.makeReplay(fieldsOf{"source": "dead_letters", "rate_per_minute": 1})
	b.waitReplay(contextFor(t, patience), made.ID, "started", func(r replay) bool { return r.Released == 1 })
	b.signal(made.WorkflowID, "pause", nil)
	b.waitReplayState(made.ID, "paused")
	b.signal(made.WorkflowID, "resume", nil)
	b.waitReplayState(made.ID, "running")
	b.signal(made.WorkflowID, "set-rate", nil)
	b.signal(made.WorkflowID, "set-rate", fieldsOf{"per_minute": 600})
	b.waitReplay(contextFor(t, patience), made.ID, "faster", func(r replay) bool { return r.Rate == 600 && r.Released > 3 })
	b.signal(made.WorkflowID, "cancel", nil)
	done := b.waitReplay(contextFor(t, patience), made.ID, "over", func(r replay) bool { return r.CompletedAt != nil })
	require.Contains(t, []string{"cancelled", "completed"}, done.State)

	var status struct {
		Released int    `json:"released"`
		State    string `json:"state"`
	}
	answer, err := b.in.temporal(t).QueryWorkflow(contextFor(t, patience), made.WorkflowID, "", "status")
	require.NoError(t, err)
	require.NoError(t, answer.Get(&status))
	require.Equal(t, done.State, status.State)
}

// Past events are sent to a newer endpoint, and again to the one that got them: the types to which each subscribes, in its own format.
func TestReplayOfEvents(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	since := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	first := b.endpoint(r, "/first", fieldsOf{"event_types": []string{"order.*"}})
	var events []event
	for range 5 {
		e, d := b.postOne("order.paid", `{}`)
		b.waitState(d.ID, "delivered")
		events = append(events, e)
	}
	var unasked event
	b.ask(http.StatusAccepted, http.MethodPost, "/events", fieldsOf{"type": "user.password_reset", "payload": 1}, &unasked)
	young := b.endpoint(r, "/young", fieldsOf{"event_types": []string{"order.*"}, "payload_format": "envelope"})
	for _, ep := range []endpoint{young, first} {
		made := b.makeReplay(fieldsOf{"source": "events", "endpoint_id": ep.ID, "since": since, "rate_per_minute": 6000})
		require.Equal(t, 5, made.Total)
		done := b.waitReplayState(made.ID, "completed")
		require.Equal(t, []int{5, 5, 0}, []int{done.Released, done.Delivered, done.Skipped})
	}
	for _, e := range events {
		paths := map[string]int{}
		for _, request := range r.of(e.ID) {
			paths[request.Path]++
		}
		require.Equal(t, map[string]int{"/first": 2, "/young": 1}, paths)
		var read event
		b.ask(http.StatusOK, http.MethodGet, "/events/"+e.ID, nil, &read)
		require.Len(t, read.Deliveries, 2)
	}
	require.Empty(t, r.of(unasked.ID))
	made := b.makeReplay(fieldsOf{"source": "events", "endpoint_id": young.ID, "since": since, "event_type": "user.*", "include_unmatched": true})
	require.Equal(t, 1, made.Total)
	b.waitReplayState(made.ID, "completed")
	sent := r.of(unasked.ID)
	require.Len(t, sent, 1)
	require.Regexp(t, `^\{"type":"user\.password_reset","timestamp":"[^"]+","data":1\}$`, string(sent[0].Body))
}
