package record_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/workflows"
)

// replay begins to send n dead letters of an endpoint of their own again, of which the
// receiver then accepts the first few or refuses all.
func (i *installation) replay(t *testing.T, n, accepted int, fields map[string]any) delivery {
	t.Helper()
	path := "/" + t.Name()
	for range n {
		i.receiver.Script(path, wrong)
	}
	endpoint := i.call(t, http.MethodPost, "/endpoints", map[string]any{"url": i.receiver.URL() + path, "event_types": []string{"nothing.by.itself"}})
	for range n {
		i.call(t, http.MethodPost, "/events", map[string]any{"type": "order.paid", "payload": "canary", "endpoint_ids": []any{endpoint["id"]}})
	}
	await(t, func() bool {
		letters, ok := i.call(t, http.MethodGet, "/dead-letters?limit=250&endpoint_id="+text(t, endpoint["id"]), nil)["data"].([]any)
		return ok && len(letters) == n
	})
	for range n - accepted {
		i.receiver.Script(path, wrong)
	}
	fields["source"], fields["endpoint_id"] = "dead_letters", endpoint["id"]
	made := i.call(t, http.MethodPost, "/replays", fields)
	return delivery{installation: i, id: text(t, made["id"]), endpoint: text(t, endpoint["id"]), workflowID: text(t, made["workflow_id"])}
}

// progress is the replay as the API shows it.
func (d delivery) progress(t *testing.T) map[string]any {
	t.Helper()
	return d.call(t, http.MethodGet, "/replays/"+d.id, nil)
}

// awaitField waits until the API shows a field of the replay with a value.
func (d delivery) awaitField(t *testing.T, field string, value any) {
	t.Helper()
	await(t, func() bool { return d.progress(t)[field] == value })
}

func (d delivery) replayCommand(t *testing.T, command string) {
	t.Helper()
	d.call(t, http.MethodPost, "/replays/"+d.id+"/"+command, map[string]any{})
}

// The names of these branches begin with "paced", because "replay" is what happens to
// one dead letter.
func replayBranches() []branch {
	slowly := func() map[string]any { return map[string]any{"rate_per_minute": 1} }
	return []branch{
		{"paced", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 5, 4, map[string]any{"rate_per_minute": 120, "ramp": false})
			d.awaitField(t, "state", "completed")
			return d
		}},
		{"paced-by-api", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 5, 5, slowly())
			d.awaitField(t, "released", 1.)
			d.replayCommand(t, "pause")
			d.awaitField(t, "state", "paused")
			d.call(t, http.MethodPatch, "/replays/"+d.id, map[string]any{"rate_per_minute": 6000})
			d.awaitField(t, "current_rate_per_minute", 6000.)
			d.replayCommand(t, "resume")
			d.awaitField(t, "state", "completed")
			return d
		}},
		{"paced-by-hand", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 5, 5, slowly())
			d.awaitField(t, "released", 1.)
			d.signal(t, workflows.SignalPause)
			d.awaitField(t, "state", "paused")
			d.signal(t, workflows.SignalResume)
			d.awaitField(t, "state", "running")
			d.signal(t, workflows.SignalSetRate)
			d.signal(t, workflows.SignalCancel)
			d.awaitField(t, "state", "cancelled")
			return d
		}},
		{"paced-cancelled-workflow", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 5, 5, slowly())
			d.awaitField(t, "released", 1.)
			require.NoError(t, d.temporal.CancelWorkflow(t.Context(), d.workflowID, ""))
			d.awaitField(t, "state", "cancelled")
			return d
		}},
		{"paced-pauses-itself", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 60, 0, map[string]any{"rate_per_minute": 300})
			d.awaitField(t, "state", "paused")
			d.replayCommand(t, "cancel")
			d.awaitField(t, "state", "cancelled")
			return d
		}},
		// The store becomes unavailable while it is at work.
		{"paced-own-fault", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 5, 5, map[string]any{"rate_per_minute": 60})
			d.awaitField(t, "released", 1.)
			i.exec(t, `alter table replays rename to replays_away`)
			before := i.count(t, d.workflowID, enumspb.EVENT_TYPE_TIMER_STARTED)
			await(t, func() bool { return i.count(t, d.workflowID, enumspb.EVENT_TYPE_TIMER_STARTED) >= before+2 })
			i.exec(t, `alter table replays_away rename to replays`)
			d.awaitField(t, "state", "completed")
			return d
		}},
		// Its workflow is terminated, which is noticed.
		{"paced-lost", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.replay(t, 3, 3, slowly())
			d.awaitField(t, "released", 1.)
			require.NoError(t, d.temporal.TerminateWorkflow(t.Context(), d.workflowID, "", "by hand"))
			i.exec(t, `update replays set relay_at = now() where state = 0`)
			d.awaitField(t, "state", "paused")
			d.replayCommand(t, "cancel")
			d.awaitField(t, "state", "cancelled")
			return d
		}},
	}
}
