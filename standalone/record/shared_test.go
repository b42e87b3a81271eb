package record_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// lot is several deliveries in one shared workflow.
type lot struct {
	*installation

	id     string
	starts []webhook.Start
}

// share makes an endpoint that waits base before each retry, and lets one workflow make
// the first attempts of as many deliveries as there are scripts. They are stored without
// an intake, which would group them as it happens.
func (i *installation) share(t *testing.T, base string, scripts ...[]receivertest.Step) lot {
	t.Helper()
	return i.shareTo(t, text(t, i.newEndpoint(t, base, "72h")["id"]), scripts...)
}

// shareTo does it for an endpoint that there is.
func (i *installation) shareTo(t *testing.T, id string, scripts ...[]receivertest.Step) lot {
	t.Helper()
	endpoint, err := webhook.ParseEndpointID(id)
	require.NoError(t, err)
	store, err := stores.Open(t.Context(), stores.Config{URL: i.database.Config().ConnString(), MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	l := lot{installation: i}
	for _, script := range scripts {
		accepted, err := store.Events.Accept(t.Context(), webhook.NewEvent{
			TenantID: "acme", Type: "order.paid", Payload: []byte(`"canary"`), EndpointIDs: []webhook.EndpointID{endpoint},
		})
		require.NoError(t, err)
		i.receiver.Script(accepted.Event.ID.String(), script...)
		l.starts = append(l.starts, accepted.Deliveries...)
	}
	return l.begin(t)
}

// begin starts the shared workflow of the lot.
func (l lot) begin(t *testing.T) lot {
	t.Helper()
	l.id = webhook.SharedWorkflowID(l.starts)
	refs := make([]webhook.Ref, len(l.starts))
	for i, start := range l.starts {
		refs[i] = start.Ref
	}
	_, err := l.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: l.id, TaskQueue: workflows.TaskQueue, TypedSearchAttributes: workflows.SharedAttributes(refs, workflows.MaxEventIDs),
		StaticSummary: workflows.Summary(refs),
	}, workflows.DeliveryWorkflow, workflows.InputOf(l.starts...))
	require.NoError(t, err)
	return l
}

// of is one of the deliveries; what is written down is its own workflow.
func (l lot) of(n int) delivery {
	start := l.starts[n]
	return delivery{installation: l.installation, id: start.DeliveryID.String(), endpoint: start.EndpointID.String(), workflowID: start.WorkflowID()}
}

// shared is the lot as what is written down: the shared workflow.
func (l lot) shared() delivery { return delivery{installation: l.installation, workflowID: l.id} }

// kept is the workflow of its dead letters as what is written down.
func (l lot) kept() delivery {
	return delivery{installation: l.installation, workflowID: webhook.DeadLettersWorkflowID(l.id, 0)}
}

func script(steps ...receivertest.Step) []receivertest.Step { return steps }

// sharing is a branch in which something happens to a lot.
func sharing(name string, do func(t *testing.T, i *installation) lot) branch {
	return branch{"shared-" + name, func(t *testing.T, i *installation) delivery {
		t.Helper()
		return do(t, i).shared()
	}}
}

// deadLetters has three of a lot given up.
func deadLetters(t *testing.T, i *installation) lot {
	t.Helper()
	l := i.share(t, "1s", script(wrong), script(wrong), script(wrong), script(fine))
	for n := range 3 {
		l.of(n).awaits(t, "dead_lettered")
	}
	l.of(3).awaits(t, "delivered")
	i.awaitTimer(t, l.kept().workflowID)
	return l
}

func sharedBranches() []branch {
	var all []branch
	add := func(name string, do func(t *testing.T, i *installation) lot) { all = append(all, sharing(name, do)) }
	add("success", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "1s", script(fine), script(fine), script(fine))
		l.all(t, "delivered")
		return l
	})
	add("retry", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "1s", script(busy, busy, fine), script(fine), script(busy, fine))
		l.all(t, "delivered")
		return l
	})
	add("dead-letter", deadLetters)
	all = append(all, branch{"dead-letters-that-are-kept", func(t *testing.T, i *installation) delivery {
		t.Helper()
		return deadLetters(t, i).kept()
	}}, branch{"dead-letters-with-commands", func(t *testing.T, i *installation) delivery {
		t.Helper()
		l := deadLetters(t, i)
		i.call(t, http.MethodPost, "/dead-letters/"+l.of(0).id+"/discard", map[string]any{})
		l.of(0).awaits(t, "discarded")
		l.of(1).do(t, "replay")
		l.of(1).awaits(t, "delivered")
		require.NoError(t, i.temporal.SignalWorkflow(t.Context(), l.kept().workflowID, "", workflows.SignalRetryNow, nil))
		require.NoError(t, i.temporal.SignalWorkflow(t.Context(), l.kept().workflowID, "", workflows.SignalReplay, "repaired"))
		l.of(2).awaits(t, "delivered")
		return l.kept()
	}})
	// R3: a signal comes while the task is at work that would end the workflow. The task fails, and is
	// repeated: it has started the workflow of the dead letter, and signals the command to that.
	add("signalled-at-its-end", func(t *testing.T, i *installation) lot {
		t.Helper()
		i.receiver.Hold()
		l := i.share(t, "1h", script(wrong))
		require.NoError(t, i.receiver.WaitHeld(t.Context(), 1))
		require.NoError(t, i.temporal.SignalWorkflow(t.Context(), l.id, "", workflows.SignalDiscard, "enough"))
		i.receiver.Release()
		l.all(t, "discarded")
		return l
	})
	// Another process has the right to send when the retry is due.
	add("busy", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "2s", script(busy, fine))
		l.all(t, "retrying")
		i.exec(t, `update deliveries set owner = gen_random_uuid(), owner_until = now() + interval '6 seconds' where state = 1 and workflow_id = $1`, l.id)
		l.all(t, "delivered")
		return l
	})
	// The store becomes unavailable while a request is under way.
	add("own-fault", func(t *testing.T, i *installation) lot {
		t.Helper()
		i.receiver.Hold()
		l := i.share(t, "1s", script(fine))
		require.NoError(t, i.receiver.WaitHeld(t.Context(), 1))
		i.exec(t, `alter table deliveries rename to deliveries_away`)
		i.receiver.Release()
		await(t, func() bool { return i.count(t, l.id, enumspb.EVENT_TYPE_TIMER_STARTED) >= 2 })
		i.exec(t, `alter table deliveries_away rename to deliveries`)
		l.all(t, "delivered")
		return l
	})
	add("asked-about-one", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "4s", script(busy, fine), script(busy, fine))
		l.all(t, "retrying")
		i.awaitTimer(t, l.id)
		l.of(0).do(t, "retry")
		l.all(t, "delivered")
		return l
	})
	add("cancelled-workflow", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "4s", script(busy, fine), script(busy, fine))
		l.all(t, "retrying")
		i.awaitTimer(t, l.id)
		require.NoError(t, i.temporal.CancelWorkflow(t.Context(), l.id, ""))
		l.all(t, "delivered")
		return l
	})
	// Its own, started by the relay, has taken it over.
	add("taken-over", func(t *testing.T, i *installation) lot {
		t.Helper()
		l := i.share(t, "3s", script(busy, fine), script(fine))
		l.of(0).awaits(t, "retrying")
		start := l.starts[0]
		_, err := i.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: start.WorkflowID(), TaskQueue: workflows.TaskQueue},
			workflows.DeliveryWorkflow, workflows.InputOf(start))
		require.NoError(t, err)
		l.all(t, "delivered")
		return l
	})
	return all
}

// all waits until the API shows all of the lot in a state, and, if that is an end, until
// the shared workflow has ended.
func (l lot) all(t *testing.T, state string) {
	t.Helper()
	for n := range l.starts {
		l.of(n).awaits(t, state)
	}
	if state != "retrying" {
		l.awaitEnd(t)
	}
}

// awaitEnd waits until the shared workflow has ended.
func (l lot) awaitEnd(t *testing.T) {
	t.Helper()
	await(t, func() bool { return l.count(t, l.id, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED) == 1 })
}
