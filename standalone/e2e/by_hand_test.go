package e2e_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// startedByHand starts a workflow as somebody does who may start workflows, and returns the error with which it ends.
func startedByHand(t *testing.T, engine client.Client, workflow string, input any) error {
	t.Helper()
	ctx := contextFor(t, patience)
	run, err := engine.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: workflows.TaskQueue}, workflow, input)
	require.NoError(t, err)
	return run.Get(ctx, nil)
}

// refOf names a delivery in the input of a workflow.
func refOf(t *testing.T, tenant, event, endpoint, kind string) fieldsOf {
	t.Helper()
	e, err := webhook.ParseEventID(event)
	require.NoError(t, err)
	to, err := webhook.ParseEndpointID(endpoint)
	require.NoError(t, err)
	return fieldsOf{
		"delivery_id": webhook.DeliveryIDOf(e, to).String(), "event_id": event, "endpoint_id": endpoint, "tenant_id": tenant, "event_type": kind,
		"run": 1, "give_up_at": time.Now().Add(time.Hour),
	}
}

func with(fields fieldsOf, further fieldsOf) fieldsOf {
	all := maps.Clone(fields)
	maps.Copy(all, further)
	return all
}

// Somebody may start workflows and has a tenant of their own. They get no payload of another tenant, and change nothing.
func TestWorkflowsStartedByHand(t *testing.T) {
	t.Parallel()
	victim := setup(t)
	theirs, mine := newReceiver(t), newReceiver(t)
	target := victim.endpoint(theirs, "/hook", nil)
	sent, delivered := victim.postOne("order.paid", `{"secret":"canary"}`)
	victim.waitState(delivered.ID, "delivered")
	intruder := newBundle(t, victim.in, victim.in.client(), tenantName("intruder"))
	own := intruder.endpoint(mine, "/mine", nil)
	engine := victim.in.temporal(t)
	before := victim.listDeliveries(url.Values{})

	for name, ref := range map[string]fieldsOf{
		"as one's own":            refOf(t, intruder.tenant, sent.ID, own.ID, "order.paid"),
		"as the other tenant's":   refOf(t, victim.tenant, sent.ID, own.ID, "order.paid"),
		"the id of another":       with(refOf(t, intruder.tenant, sent.ID, own.ID, "order.paid"), fieldsOf{"delivery_id": delivered.ID}),
		"a delivery as one's own": refOf(t, intruder.tenant, sent.ID, target.ID, "order.paid"),
		"another type":            refOf(t, victim.tenant, sent.ID, target.ID, "order.refunded"),
		"no such event":           refOf(t, victim.tenant, webhook.NewEventID().String(), target.ID, "order.paid"),
		"nothing":                 {},
	} {
		cancel := fieldsOf{"id": 1, "command": webhook.CommandCancel.String()}
		for _, members := range [][]fieldsOf{
			{ref}, {with(ref, fieldsOf{"synced": true, "running": true})}, {with(ref, fieldsOf{"command": cancel})},
			{with(ref, fieldsOf{"pending": []fieldsOf{cancel}})}, {with(ref, fieldsOf{"terminated": true, "seq": 1})}, {ref, ref},
		} {
			require.NoError(t, startedByHand(t, engine, "DeliveryWorkflow", fieldsOf{"members": members}), name)
		}
		for _, asked := range []string{"replay", "discard"} {
			dead := with(ref, fieldsOf{"state": webhook.StateDeadLettered.String(), asked: fieldsOf{"reason": "mine"}})
			require.NoError(t, startedByHand(t, engine, "DeadLetterWorkflow", fieldsOf{"dead_letters": []fieldsOf{dead}}), name)
		}
		if id, named := ref["delivery_id"].(string); named && id != delivered.ID {
			got, err := intruder.client.call(contextFor(t, patience), http.MethodPost, intruder.path("/deliveries/"+id+"/replay"), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, got.status, "%s: %s", name, got.body)
		}
	}
	require.Error(t, startedByHand(t, engine, "TenantDeletionWorkflow", fieldsOf{"tenant_id": victim.tenant}))
	require.Error(t, startedByHand(t, engine, "TenantDeletionWorkflow", fieldsOf{"tenant_id": "x' or TenantId != '"}))

	require.Empty(t, mine.Requests())
	require.Len(t, theirs.Requests(), 1)
	require.Empty(t, intruder.listDeliveries(url.Values{}))
	require.Equal(t, withoutWords(before), withoutWords(victim.listDeliveries(url.Values{})))
}

// With encrypted histories nothing runs that is started by hand, also for a delivery that exists; a signal by hand is accepted.
func TestEncryptedHistoriesTakeNoPlainInput(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, settings{"EVERPOST_ENCRYPT_HISTORIES": "true"})
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	target := b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently()})
	r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable})
	sent, d := b.postOne("order.paid", `{}`)
	d = b.waitState(d.ID, "retrying")
	engine, ref := in.temporal(t), refOf(t, b.tenant, sent.ID, target.ID, "order.paid")
	for workflow, input := range map[string]fieldsOf{
		"DeliveryWorkflow": {"members": []fieldsOf{with(ref, fieldsOf{"seq": 9})}},
		"DeadLetterWorkflow": {"dead_letters": []fieldsOf{
			with(ref, fieldsOf{"state": webhook.StateDeadLettered.String(), "seq": 9, "discard": fieldsOf{}}),
		}},
		"ReplayWorkflow": {"replay_id": webhook.NewReplayID().String()},
	} {
		require.ErrorContains(t, startedByHand(t, engine, workflow, input), "Encoded failure", workflow)
	}
	require.Equal(t, wordless(d), wordless(b.delivery(d.ID)))
	require.Len(t, r.Requests(), 1)

	require.NoError(t, engine.SignalWorkflow(contextFor(t, patience), d.WorkflowID, "", workflows.SignalCancel, "by hand"))
	require.Equal(t, "by hand", text(b.waitState(d.ID, "cancelled").Reason))
}

// No endpoint is where the installation itself listens, although everything on this machine is allowed.
func TestOwnListenersAreNoReceivers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"api", "admin", "ui", "temporal"} {
		_, port, found := strings.Cut(strings.TrimPrefix(b.in.addr[name], "http://"), ":")
		require.True(t, found, b.in.addr[name])
		for _, host := range []string{"127.0.0.1", "localhost"} {
			got := b.ask(http.StatusBadRequest, http.MethodPost, "/endpoints", fieldsOf{"url": "http://" + host + ":" + port + "/hook"}, nil)
			require.Contains(t, string(got.body), "Everpost itself listens there", name)
		}
	}
	b.ask(http.StatusBadRequest, http.MethodPost, "/endpoints", fieldsOf{
		"url": newReceiver(t).URL() + "/hook", "headers": fieldsOf{"Sec-Fetch-Site": "same-origin"},
	}, nil)
}
