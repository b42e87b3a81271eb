package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// engineOf is a namespace of a test's own, on the shared instance's Temporal.
func engineOf(t *testing.T, name string) (engine client.Client, address, namespace string) {
	t.Helper()
	address, namespace = sharedTemporal(t), name+"-"+filepath.Base(t.TempDir())+time.Now().Format("150405")
	makeNamespace(contextFor(t, patience), t, address, namespace)
	engine, err := client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	return engine, address, namespace
}

// database is a connection to the instance's database.
func (in *instance) database(t *testing.T) *pgx.Conn {
	t.Helper()
	database, err := pgx.Connect(contextFor(t, patience), in.env["EVERPOST_DATABASE_URL"])
	require.NoError(t, err)
	t.Cleanup(func() { _ = database.Close(t.Context()) })
	return database
}

// workflowsIn are the workflows of a namespace that match, without those that replay.
func workflowsIn(t *testing.T, engine client.Client, query string) (n int) {
	t.Helper()
	counted, err := engine.CountWorkflow(contextFor(t, patience), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
	require.NoError(t, err)
	return int(counted.GetCount())
}

// A lost key holds its endpoint's deliveries in the store: none is counted as an attempt, and
// hardly any has a workflow. When the key is there again, each is sent once.
func TestLostKeyHoldsDeliveries(t *testing.T) {
	t.Parallel()
	const events = 40
	engine, address, namespace := engineOf(t, "lostkey")
	in := cluster(t, address, namespace, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	sick := b.endpoint(r, "/sick", fieldsOf{"event_types": []string{"a.sick"}})
	b.endpoint(r, "/well", fieldsOf{"event_types": []string{"a.well"}})
	ctx, database := contextFor(t, 2*patience), in.database(t)
	var key string
	require.NoError(t, database.QueryRow(ctx, `
		update endpoint_secrets s set kek_id = 'kek:lost' from endpoint_secrets before
		where s.endpoint_id = (select id from endpoints where url like '%/sick') and before.endpoint_id = s.endpoint_id
		returning before.kek_id`).Scan(&key))

	var ids []string
	for n := range events {
		e, _ := b.postOne("a.sick", strconv.Itoa(n))
		ids = append(ids, e.ID)
	}
	_, well := b.postOne("a.well", `{}`)
	b.waitState(well.ID, "delivered")
	eventually(ctx, t, func() string {
		if held := b.listDeliveries(url.Values{"state": {"held"}}); len(held) != events {
			return fmt.Sprintf("%d are held", len(held))
		}
		return ""
	})
	for _, d := range b.listDeliveries(url.Values{"state": {"held"}}) {
		d = b.delivery(d.ID)
		require.Equal(t, "internal", text(d.Reason))
		require.Contains(t, text(d.LastError), "cannot be decrypted")
		require.Zero(t, d.Attempts)
	}
	b.requireExplained(b.listDeliveries(url.Values{"state": {"held"}})[0], "internal_fault",
		`A fault of Everpost, not of the receiver, keeps the delivery waiting: .*cannot be decrypted.*; tried again until `+clock+`\.`,
		"No attempt is counted, and nothing is recorded against the endpoint.")
	eventually(ctx, t, func() string { // visibility lags
		if n := workflowsIn(t, engine, "ExecutionStatus = 'Running'"); n > 2 {
			return fmt.Sprintf("%d workflows run for %d deliveries that are held", n, events)
		}
		return ""
	})
	require.Equal(t, 1, r.Count())

	_, err := database.Exec(ctx, `update endpoint_secrets set kek_id = $1 where kek_id = 'kek:lost'`, key)
	require.NoError(t, err)
	b.allDelivered(contextFor(t, 2*patience), r, ids)
	require.Equal(t, 1+events, r.Count(), "each once")
	require.NotEmpty(t, sick.ID)
}

// Two hundred deliveries that no worker takes up stay in the shared workflows they were put
// into, however often the relay looks at them; and when a worker is there, each is sent once.
func TestNoWorkerForAWhile(t *testing.T) {
	t.Parallel()
	const events = 200
	engine, address, namespace := engineOf(t, "noworker")
	in := cluster(t, address, namespace, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	hook := b.endpoint(r, "/hook", nil)
	require.NoError(t, in.process.Terminate())
	var err error
	in.process, err = launch(in.env, in.log, "api")
	require.NoError(t, err)
	in.addr, err = in.process.Ready(contextFor(t, startPatience))
	require.NoError(t, err)
	b.client = in.client()
	ctx, database := contextFor(t, 3*patience), in.database(t)

	var ids []string
	for n := range events / 100 {
		var all []string
		for m := range 100 {
			all = append(all, fmt.Sprintf(`{"type":"a.burst","payload":%d}`, 100*n+m))
		}
		var made batch
		b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(all...), &made)
		for _, e := range made.Events {
			ids = append(ids, e.ID)
		}
	}
	for looks := 1; looks <= 4; looks++ { // as in the first two minutes
		_, err := database.Exec(ctx, `update outbox set relay_at = now()`)
		require.NoError(t, err)
		eventually(ctx, t, func() string {
			var n int
			require.NoError(t, database.QueryRow(ctx, `select count(*) from outbox where relayed >= $1`, looks).Scan(&n))
			if n < events {
				return fmt.Sprintf("the relay has looked at %d", n)
			}
			return ""
		})
	}
	var placed int
	require.NoError(t, database.QueryRow(ctx, `select count(*) from outbox where workflow_id <> ''`).Scan(&placed))
	require.Equal(t, events, placed)
	// What was started last would be visible by now: it is read by id.
	var own int
	for _, id := range ids {
		if _, err := engine.DescribeWorkflow(ctx, "delivery/"+id+"/"+hook.ID, ""); err == nil {
			own++
		}
	}
	require.LessOrEqual(t, own, 4, "deliveries with a workflow of their own")
	require.LessOrEqual(t, workflowsIn(t, engine, "ExecutionStatus = 'Running'"), 12)

	worker, err := launch(in.env, in.log, "worker")
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := worker.Terminate(); err != nil {
			t.Errorf("stop the worker: %v", err)
		}
	})
	b.allDelivered(ctx, r, ids)
	require.Equal(t, events, r.Count(), "each once")
}
