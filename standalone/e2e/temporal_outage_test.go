package e2e_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
)

// makeNamespace sets up a namespace as an operator of a cluster does.
func makeNamespace(ctx context.Context, t *testing.T, address, name string) {
	t.Helper()
	f, err := runToEnd(ctx, settings{"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": name}, "setup-temporal")
	require.NoError(t, err)
	require.Zero(t, f.Code, f.Stderr)
}

// cluster is "everpost serve" on a PostgreSQL of its own, with the Temporal at the address.
func cluster(t *testing.T, temporal, namespace string, further settings) *instance {
	t.Helper()
	in := ownHome(t)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if in.process != nil && in.process.Running() {
			if err := in.process.Terminate(); err != nil {
				t.Errorf("stop everpost serve: %v", err)
			}
		}
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	in.key = "the-operator-of-a-cluster-in-a-test"
	in.env = in.env.With(settings{
		"EVERPOST_DATABASE_URL": database.URL(localpg.Database), "EVERPOST_OPERATOR_KEY": in.key,
		"EVERPOST_KEK": "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=", "TEMPORAL_ADDRESS": temporal, "TEMPORAL_NAMESPACE": namespace,
	}).With(further)
	for _, name := range []string{"EVERPOST_DATA_DIR", "EVERPOST_DEMO", "EVERPOST_TEMPORAL_LISTEN", "EVERPOST_UI_LISTEN"} {
		delete(in.env, name) // these are standalone's
	}
	ctx := contextFor(t, startPatience)
	f, err := runToEnd(ctx, in.env, "migrate")
	require.NoError(t, err)
	require.Zero(t, f.Code, f.Stderr)
	in.process, err = launch(in.env, in.log, "serve")
	require.NoError(t, err)
	in.addr, err = in.process.Ready(ctx)
	require.NoError(t, err)
	return in
}

// health reads /readyz.
func (in *instance) health(t *testing.T) (status int, says string) {
	t.Helper()
	got, err := (&apiClient{base: in.addr["admin"], http: http.DefaultClient}).call(contextFor(t, patience), http.MethodGet, "/readyz", nil)
	require.NoError(t, err)
	var h struct {
		Status string `json:"status"`
	}
	require.NoError(t, got.into(&h))
	return got.status, h.Status
}

func (in *instance) waitHealth(t *testing.T, want string) {
	t.Helper()
	eventually(contextFor(t, patience), t, func() string {
		status, says := in.health(t)
		require.Equal(t, http.StatusOK, status, "the API can do its work all the time")
		if says != want {
			return "readyz says " + says + ", not " + want
		}
		return ""
	})
}

func TestTemporalAway(t *testing.T) {
	t.Parallel()
	engine, namespace := sharedTemporal(t), "away-"+filepath.Base(os.TempDir())+time.Now().Format("150405")
	makeNamespace(contextFor(t, patience), t, engine, namespace)
	line := newProxy(t, engine)
	in := cluster(t, line.address, namespace, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	in.waitHealth(t, "ok")
	_, d := b.postOne("order.paid", `{}`)
	b.waitState(d.ID, "delivered")

	line.cut()
	var ids []string
	for range 10 { // before anyone has noticed
		e, _ := b.postOne("order.paid", `{}`)
		ids = append(ids, e.ID)
	}
	in.waitHealth(t, "degraded")
	sent := r.Count() // until then first requests may have gone out eagerly
	for range 10 {
		began := time.Now()
		e, waits := b.postOne("order.paid", `{}`)
		ids, d = append(ids, e.ID), waits
		require.Less(t, time.Since(began), 5*time.Second, "requests do not wait for Temporal")
	}
	b.requireExplained(b.delivery(d.ID), "engine_away",
		`Attempt 1 waits because Temporal has been unreachable since `+clock+`, \d+ s ago; it is made when Temporal is back\.`, "safely stored in PostgreSQL")
	require.Equal(t, sent, r.Count(), "without an engine nothing is sent")

	line.restore(t)
	in.waitHealth(t, "ok")
	b.allDelivered(contextFor(t, patience), r, ids)
	require.Equal(t, 1+len(ids), r.Count(), "each once")
	require.NoError(t, in.process.Terminate())
}
