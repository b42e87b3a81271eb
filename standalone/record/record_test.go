package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/workflows"
)

var update = flag.Bool("update", false, "record the histories again and write them to workflows/testdata")

const testdata = "../../workflows/testdata"

var (
	busy  = receivertest.Step{Status: http.StatusServiceUnavailable}
	wrong = receivertest.Step{Status: http.StatusBadRequest}
	fine  = receivertest.Step{}
)

// TestRecord takes every branch of the workflows once, in a whole installation, and writes the histories. It only runs on request:
//
//	go test ./record -run TestRecord -update
func TestRecord(t *testing.T) { //nolint:paralleltest // one branch makes the database unavailable to all
	if !*update {
		t.Skip("the histories are recorded; -update records them again")
	}
	i := setup(t)
	for _, branch := range branches() {
		require.True(t, t.Run(branch.name, func(t *testing.T) {
			d := branch.take(t, i)
			d.write(t, branch.name)
		}))
	}
}

type branch struct {
	name string
	take func(t *testing.T, i *installation) delivery
}

func branches() []branch {
	return slices.Concat(deliveryBranches(), commandBranches(), deadLetterBranches(), replayBranches(),
		heldBranches(), rescheduleBranches(), sharedBranches(), admissionBranches(), stayBranches(), tenantDeletionBranches())
}

// ending is a branch that the receiver's answers alone bring to an end.
func ending(name, state, base string, script ...receivertest.Step) branch {
	return branch{name, func(t *testing.T, i *installation) delivery {
		t.Helper()
		d := i.post(t, base, time.Time{}, script...)
		d.awaits(t, state)
		return d
	}}
}

func deliveryBranches() []branch {
	slow := 4 * time.Second // than an eager request and a workflow task wait
	return []branch{
		ending("success", "delivered", "100ms", fine),
		ending("retry", "delivered", "1s", busy, busy, fine),
		ending("retry-after", "delivered", "100ms", receivertest.Step{Status: 429, Header: map[string]string{"Retry-After": "1"}}, fine),
		ending("exhausted", "dead_lettered", "100ms", busy, busy, busy),
		{"slow", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "100ms", time.Time{}, receivertest.Step{Delay: slow})
			d.awaits(t, "delivered")
			d.awaitEnd(t)
			return d
		}},
		ending("slow-retry", "delivered", "100ms", receivertest.Step{Status: 503, Delay: slow}, fine),
		{"deliver-at", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "100ms", time.Now().Add(time.Second), fine)
			d.awaits(t, "delivered")
			return d
		}},
		// Another process has a claim when the retry is due.
		{"busy", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "2s", time.Time{}, busy, fine)
			d.awaits(t, "retrying")
			i.exec(t, `update deliveries set owner = gen_random_uuid(), owner_until = now() + interval '4 seconds' where state = 1`)
			d.awaits(t, "delivered")
			return d
		}},
		// The store becomes unavailable while a request is under way.
		{"own-fault", func(t *testing.T, i *installation) delivery {
			t.Helper()
			i.receiver.Hold()
			d := i.post(t, "100ms", time.Time{}, fine)
			require.NoError(t, i.receiver.WaitHeld(t.Context(), 1))
			i.exec(t, `alter table deliveries rename to deliveries_away`)
			i.receiver.Release()
			await(t, func() bool { return i.count(t, d.workflowID, enumspb.EVENT_TYPE_TIMER_STARTED) >= 2 })
			i.exec(t, `alter table deliveries_away rename to deliveries`)
			d.awaits(t, "delivered")
			return d
		}},
		{"endpoint-deleted", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "1s", time.Time{}, busy)
			d.awaits(t, "retrying")
			i.call(t, http.MethodDelete, "/endpoints/"+d.endpoint, nil)
			d.awaits(t, "cancelled")
			return d
		}},
	}
}

func commandBranches() []branch {
	// waiting is a branch in which something happens while a retry is waited for.
	waiting := func(name, base, state string, do func(t *testing.T, d delivery)) branch {
		return branch{name, func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, base, time.Time{}, busy, fine)
			d.awaits(t, "retrying")
			i.awaitTimer(t, d.workflowID)
			do(t, d)
			d.awaits(t, state)
			return d
		}}
	}
	return []branch{
		waiting("cancel", "1h", "cancelled", func(t *testing.T, d delivery) {
			t.Helper()
			d.do(t, "cancel")
		}),
		waiting("cancelled-workflow", "1h", "cancelled", func(t *testing.T, d delivery) {
			t.Helper()
			require.NoError(t, d.temporal.CancelWorkflow(t.Context(), d.workflowID, ""))
		}),
		// Its signal got lost: the next attempt finds it.
		waiting("cancel-from-the-record", "2s", "cancelled", func(t *testing.T, d delivery) {
			t.Helper()
			d.exec(t, `update deliveries set command = 1, command_id = command_id + 1, command_reason = '', commanded_at = now() where state = 1`)
		}),
		waiting("retry-now", "1h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.do(t, "retry")
		}),
		waiting("retry-now-without-input", "1h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.signal(t, workflows.SignalRetryNow)
		}),
		waiting("ignored-signal", "1h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			before := d.count(t, d.workflowID, enumspb.EVENT_TYPE_MARKER_RECORDED)
			d.signal(t, workflows.SignalReplay)
			await(t, func() bool { return d.count(t, d.workflowID, enumspb.EVENT_TYPE_MARKER_RECORDED) == before+1 })
			d.do(t, "retry")
		}),
		// Its signal got lost: the attempt finds it in its own outcome, and answers it.
		{"retry-while-slow", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "3s", time.Time{}, busy, receivertest.Step{Status: 503, Delay: 3 * time.Second}, fine)
			d.awaits(t, "retrying")
			await(t, func() bool { return i.count(t, d.workflowID, enumspb.EVENT_TYPE_TIMER_STARTED) == 2 }) // for the retry, and for its answer
			d.exec(t, `update deliveries set command = 2, command_id = command_id + 1, command_reason = '', commanded_at = now() where state = 1`)
			d.awaits(t, "delivered")
			return d
		}},
		{"cancel-while-slow", func(t *testing.T, i *installation) delivery {
			t.Helper()
			i.receiver.Hold()
			d := i.post(t, "1h", time.Time{}, busy)
			i.awaitTimer(t, d.workflowID)
			d.do(t, "cancel")
			await(t, func() bool {
				return i.count(t, d.workflowID, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) == 1
			})
			i.receiver.Release()
			d.awaits(t, "cancelled")
			return d
		}},
	}
}

func deadLetterBranches() []branch {
	// resting is a branch in which something happens to a dead letter.
	resting := func(name, state string, do func(t *testing.T, d delivery)) branch {
		return branch{name, func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "100ms", time.Time{}, wrong, fine)
			d.awaits(t, "dead_lettered")
			i.awaitTimer(t, d.workflowID)
			do(t, d)
			d.awaits(t, state)
			if state == "delivered" { // by the workflow of the second run
				d.awaitEnd(t)
				d.earlier = i.runs(t, d.workflowID)
				d.workflowID += "/2"
			}
			return d
		}}
	}
	return []branch{
		resting("replay", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.do(t, "replay")
		}),
		resting("replay-by-hand", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.signal(t, workflows.SignalReplay)
		}),
		resting("discard", "discarded", func(t *testing.T, d delivery) {
			t.Helper()
			d.call(t, http.MethodPost, "/dead-letters/"+d.id+"/discard", map[string]any{})
		}),
		resting("discard-by-cancellation", "discarded", func(t *testing.T, d delivery) {
			t.Helper()
			require.NoError(t, d.temporal.CancelWorkflow(t.Context(), d.workflowID, ""))
		}),
		resting("dead-letter-that-is-kept", "dead_lettered", func(*testing.T, delivery) {}),
		{"replay-after-delivered", func(t *testing.T, i *installation) delivery {
			t.Helper()
			var d delivery
			await(t, func() bool { // one that is posted just after another one shares a workflow with it
				d = i.post(t, "100ms", time.Time{}, fine, fine)
				d.awaits(t, "delivered")
				return d.now(t)["workflow_id"] == d.workflowID
			})
			d.awaitEnd(t)
			d.earlier = i.runs(t, d.workflowID)
			d.do(t, "replay")
			d.workflowID += "/2"
			await(t, func() bool {
				now := d.now(t)
				return now["state"] == "delivered" && now["attempts"] == 2.0
			})
			return d
		}},
	}
}

// signal sends a signal as the Web UI does when nothing is filled in.
func (d delivery) signal(t *testing.T, name string) {
	t.Helper()
	_, err := d.temporal.WorkflowService().SignalWorkflowExecution(t.Context(), &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: d.workflowID}, SignalName: name, Identity: identity,
	})
	require.NoError(t, err)
}

// awaitEnd waits until the newest run has ended.
func (d delivery) awaitEnd(t *testing.T) {
	t.Helper()
	await(t, func() bool { return d.count(t, d.workflowID, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED) == 1 })
}

// count counts events in the history of the newest run.
func (i *installation) count(t *testing.T, workflowID string, event enumspb.EventType) (n int) {
	t.Helper()
	for _, e := range i.history(t, workflowID, "").GetEvents() {
		if e.GetEventType() == event {
			n++
		}
	}
	return n
}

// awaitTimer waits until the newest run waits for a timer.
func (i *installation) awaitTimer(t *testing.T, workflowID string) {
	t.Helper()
	await(t, func() bool { return i.count(t, workflowID, enumspb.EVENT_TYPE_TIMER_STARTED) >= 1 })
}

func (i *installation) history(t *testing.T, workflowID, runID string) *historypb.History {
	t.Helper()
	found := &historypb.History{}
	events := i.temporal.GetWorkflowHistory(t.Context(), workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if _, notYet := errors.AsType[*serviceerror.NotFound](err); notYet {
			break // accepted, and about to be started
		}
		require.NoError(t, err)
		found.Events = append(found.Events, event)
	}
	return found
}

// write writes down a delivery's runs, each in a file with its number, if there are
// several. The last one must have ended, or wait.
func (d delivery) write(t *testing.T, name string) {
	t.Helper()
	var runs []*historypb.History
	await(t, func() bool {
		runs = append(slices.Clone(d.earlier), d.runs(t, d.workflowID)...)
		events := runs[len(runs)-1].GetEvents()
		last := events[len(events)-1].GetEventType()
		return last == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED || last == enumspb.EVENT_TYPE_TIMER_STARTED
	})
	for n, history := range runs {
		file := name
		if len(runs) > 1 {
			file += "-" + strconv.Itoa(n+1)
		}
		require.NoError(t, os.MkdirAll(testdata, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(testdata, file+".json"), asJSON(t, history), 0o644))
	}
}

// runs are the histories of the newest chain of runs of a workflow id, oldest first.
func (i *installation) runs(t *testing.T, workflowID string) []*historypb.History {
	t.Helper()
	var found []*historypb.History
	for run, first := "", true; first || run != ""; first = false {
		history := i.history(t, workflowID, run)
		require.NotEmpty(t, history.GetEvents())
		found = append(found, history)
		run = history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
	}
	slices.Reverse(found)
	return found
}

// asJSON is a history as it is kept. Sticky task queues are named after the host, which is
// no business of the file's.
func asJSON(t *testing.T, history *historypb.History) []byte {
	t.Helper()
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, event := range history.GetEvents() {
		queue := event.GetWorkflowTaskScheduledEventAttributes().GetTaskQueue()
		if queue.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
			_, id, _ := strings.Cut(queue.GetName(), ":")
			queue.Name = identity + ":" + id
		}
	}
	compact, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(history)
	require.NoError(t, err)
	require.NotRegexp(t, `["@:]`+regexp.QuoteMeta(host)+`["@:]`, string(compact)) // a short name may be part of any base64
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, compact, "", " "))
	indented.WriteByte('\n')
	return indented.Bytes()
}
