package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/receivertest"
)

// isShared says whether an id is that of a workflow with several deliveries.
func isShared(workflowID string) bool { return strings.HasPrefix(workflowID, "fanout/") }

// holds requires that the workflow which the API names runs, and that the link leads
// to it. One that was named a moment ago may be about to be started.
func (b *bundle) holds(d delivery) {
	b.t.Helper()
	engine := b.in.temporal(b.t)
	eventually(contextFor(b.t, patience), b.t, func() string {
		found, err := engine.DescribeWorkflowExecution(b.t.Context(), d.WorkflowID, "")
		if status := found.GetWorkflowExecutionInfo().GetStatus(); err != nil || status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return fmt.Sprintf("%s is said to be in %s, which is %s (%v)", d.ID, d.WorkflowID, status, err)
		}
		return ""
	})
	link, err := url.Parse(d.WorkflowURL)
	require.NoError(b.t, err)
	require.Contains(b.t, link.Path, d.WorkflowID)
}

// One event to ten endpoints: whatever each of them does, its delivery can be looked up,
// named and commanded like any other.
func TestSharedFirstAttempts(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	patient := fieldsOf{"retry_policy": patiently()}
	for _, path := range []string{"/fine-1", "/fine-2", "/fine-3"} {
		b.endpoint(r, path, nil)
	}
	b.endpoint(r, "/again-1", nil)
	b.endpoint(r, "/again-2", nil)
	b.endpoint(r, "/late-1", patient)
	b.endpoint(r, "/late-2", patient)
	b.endpoint(r, "/slow", nil)
	b.endpoint(r, "/wrong-1", nil)
	b.endpoint(r, "/wrong-2", nil)
	r.Script("/again-1", receivertest.Step{Status: 503})
	r.Script("/again-2", receivertest.Step{Status: 503}, receivertest.Step{Drop: true})
	r.Script("/late-1", receivertest.Step{Status: 500})
	r.Script("/late-2", receivertest.Step{Status: 500})
	r.Script("/slow", receivertest.Step{Delay: 3 * time.Second})
	r.Script("/wrong-1", receivertest.Step{Status: 400})
	r.Script("/wrong-2", receivertest.Step{Status: 400})

	e := b.post("order.paid", `{"n":1}`)
	require.Len(t, e.Deliveries, 10)
	paths := map[string]string{} // of the deliveries' ids, by the path of their endpoint
	for _, d := range e.Deliveries {
		var ep endpoint
		b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+d.EndpointID, nil, &ep)
		link, err := url.Parse(ep.URL)
		require.NoError(t, err)
		paths[link.Path] = d.ID
	}
	shared := 0
	for path, want := range map[string]struct {
		state    string
		attempts int
		running  bool // the workflow that has it
	}{
		"/fine-1": {"delivered", 1, false}, "/fine-2": {"delivered", 1, false}, "/fine-3": {"delivered", 1, false},
		"/again-1": {"delivered", 2, false}, "/again-2": {"delivered", 3, false},
		"/late-1": {"retrying", 1, true}, "/late-2": {"retrying", 1, true},
		"/slow":    {"delivered", 1, false},
		"/wrong-1": {"dead_lettered", 1, true}, "/wrong-2": {"dead_lettered", 1, true},
	} {
		d := b.waitState(paths[path], want.state)
		require.Equal(t, want.attempts, d.Attempts, path)
		require.Len(t, b.attempts(d.ID), want.attempts, path)
		if isShared(d.WorkflowID) {
			shared++
		}
		if want.running {
			if !isShared(d.WorkflowID) && !strings.HasPrefix(d.WorkflowID, "dead/") { // a shared one, or one of dead letters
				require.Equal(t, workflowID(d), d.WorkflowID, "%s has a workflow of its own", path)
			}
			b.holds(d)
		}
	}
	require.Positive(t, shared, "some have shared a workflow")

	asked := time.Now()
	b.command(http.StatusAccepted, paths["/late-1"], "cancel", fieldsOf{"reason": "not wanted"})
	b.command(http.StatusAccepted, paths["/late-2"], "retry", nil)
	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+paths["/wrong-1"]+"/replay", nil, nil)
	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+paths["/wrong-2"]+"/discard", nil, nil)
	b.command(http.StatusAccepted, paths["/fine-1"], "replay", nil)
	require.Equal(t, "not wanted", text(b.waitState(paths["/late-1"], "cancelled").Reason))
	require.Equal(t, 2, b.waitState(paths["/late-2"], "delivered").Attempts)
	require.Equal(t, 2, b.waitState(paths["/wrong-1"], "delivered").Run)
	b.waitState(paths["/wrong-2"], "discarded")
	b.requireAtOnce(asked, time.Since(asked), "by signals, not by the relay")
	eventually(contextFor(t, patience), t, func() string {
		if d := b.delivery(paths["/fine-1"]); d.Run != 2 || d.State != "delivered" || d.WorkflowID != workflowID(d) {
			return fmt.Sprintf("run %d of the replayed one is %s in %s", d.Run, d.State, d.WorkflowID)
		}
		return ""
	})

	seen := map[string]int{}
	for _, request := range r.of(e.ID) {
		seen[request.Path]++
	}
	require.Equal(t, map[string]int{
		"/fine-1": 2, "/fine-2": 1, "/fine-3": 1, "/again-1": 2, "/again-2": 3, "/late-1": 1, "/late-2": 2, "/slow": 1, "/wrong-1": 2, "/wrong-2": 1,
	}, seen)
}

// A delivery that waits for a near retry in a shared workflow gets commands like any other.
func TestSharedIsCommanded(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	soon := fieldsOf{"retry_policy": fieldsOf{"strategy": "fixed", "base": "20s", "jitter": "none"}}
	for n := range 10 {
		path := "/" + strconv.Itoa(n)
		b.endpoint(r, path, soon)
		r.Script(path, receivertest.Step{Status: 503}, receivertest.Step{Status: 503})
	}
	for _, d := range b.post("order.paid", `{}`).Deliveries {
		b.waitState(d.ID, "retrying") // so that the next requests are not eager, and their deliveries share a workflow
	}
	e := b.post("order.paid", `{}`)
	var waiting []delivery
	for _, d := range e.Deliveries {
		if d = b.waitState(d.ID, "retrying"); isShared(d.WorkflowID) {
			waiting = append(waiting, d)
		}
	}
	require.GreaterOrEqual(t, len(waiting), 3)
	b.holds(waiting[0])
	began := time.Now()
	b.command(http.StatusAccepted, waiting[0].ID, "cancel", nil)
	b.command(http.StatusAccepted, waiting[1].ID, "retry", nil)
	b.waitState(waiting[0].ID, "cancelled")
	b.waitState(waiting[1].ID, "delivered")
	b.requireAtOnce(began, time.Since(began), "by the signal, not by the relay")
	for _, d := range waiting[2:] {
		d = b.waitState(d.ID, "delivered")
		require.Equal(t, 2, d.Attempts)
	}
	for _, d := range e.Deliveries { // those that did not share a workflow, too
		if d.ID != waiting[0].ID {
			require.Equal(t, 2, b.waitState(d.ID, "delivered").Attempts)
		}
	}
	for _, d := range waiting {
		require.Equal(t, d.WorkflowID, b.delivery(d.ID).WorkflowID, "it stayed")
	}
	require.Len(t, r.of(e.ID), 19)
}

// Killed with shared workflows in all stages: under way, waiting for a near retry, about
// to begin.
func TestKilledWithSharedWorkflows(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r, held := newBundle(t, in, in.client(), "acme"), newReceiver(t), newReceiver(t)
	only := func(kind string) fieldsOf {
		fields := unguarded()
		fields["event_types"], fields["retry_policy"] = []string{kind}, fieldsOf{"strategy": "fixed", "base": "5s", "jitter": "none"}
		return fields
	}
	b.endpoint(r, "/retried", only("a.retried"))
	b.endpoint(r, "/burst", only("a.burst"))
	b.endpoint(held, "/held", only("a.held"))
	held.Hold()
	burst := func(kind string, n int) []string {
		var all sync.WaitGroup
		ids := make([]string, n)
		for i := range ids {
			all.Go(func() {
				var e event
				got, err := b.client.call(t.Context(), http.MethodPost, b.path("/events"), fmt.Sprintf(`{"type":%q,"payload":%d}`, kind, i))
				if err == nil && got.status == http.StatusAccepted && got.into(&e) == nil {
					ids[i] = e.ID
				}
			})
		}
		all.Wait()
		require.NotContains(t, ids, "", "all were acknowledged")
		return ids
	}
	r.Script("/retried", slices.Repeat([]receivertest.Step{{Status: 503}}, 60)...)
	retried := burst("a.retried", 60)
	eventually(contextFor(t, patience), t, func() string {
		if n := len(b.listDeliveries(url.Values{"state": {"retrying"}})); n < len(retried) {
			return fmt.Sprintf("%d wait for their retry", n)
		}
		return ""
	})
	underWay := burst("a.held", 40)
	require.NoError(t, held.WaitHeld(contextFor(t, patience), 5))
	begun := burst("a.burst", 60)
	shared := map[string]bool{}
	for _, d := range b.listDeliveries(url.Values{}) {
		if isShared(d.WorkflowID) {
			shared[d.WorkflowID] = true
		}
	}
	in.kill9()
	require.NotEmpty(t, shared, "some shared a workflow")
	before := held.Count()
	held.Release()

	in.restart(t)
	b.client = in.client()
	b.allDelivered(contextFor(t, longRecovery), r, append(retried, begun...))
	for _, d := range b.listDeliveries(url.Values{"event_type": {"a.held"}}) {
		require.Equal(t, "delivered", d.State)
	}
	for _, id := range retried {
		numbers := numbersOf(r.of(id))
		require.Equal(t, []string{"1", "2"}, slices.Compact(slices.Sorted(slices.Values(numbers))), "each number, none after it was delivered")
		require.LessOrEqual(t, len(numbers), 3, "an attempt that is on record is not repeated")
	}
	twice := 0
	for _, id := range underWay {
		n := len(held.of(id))
		require.Positive(t, n)
		require.LessOrEqual(t, n, 2, "once before and, when its outcome is not known, once after")
		twice += n - 1
		require.Equal(t, []string{"1"}, slices.Compact(numbersOf(held.of(id))))
	}
	require.LessOrEqual(t, twice, before)
	for _, id := range begun {
		require.LessOrEqual(t, len(r.of(id)), 2)
	}
	t.Logf("%d shared workflows; of %d requests under way %d were sent again", len(shared), before, twice)
}

// numbersOf are the attempts' numbers that requests say.
func numbersOf(requests []receivertest.Request) []string {
	numbers := make([]string, len(requests))
	for i, request := range requests {
		numbers[i] = request.Header.Get("everpost-attempt")
	}
	return numbers
}
