package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/receivertest"
)

// Two hosts of one installation, one 10 min behind and the other 10 min ahead, deliver and retry
// at the right time, sign with a time that receivers take, and send nothing twice. Each starts
// and carries on what the other has accepted.
func TestHostsWhoseClocksAreWrong(t *testing.T) {
	t.Parallel()
	engine, namespace := sharedTemporal(t), "clock-"+time.Now().Format("150405.000000")
	makeNamespace(contextFor(t, patience), t, engine, namespace)
	in := ownHome(t)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := config.Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", DatabaseURL: database.URL(localpg.Database), OperatorKey: "the-operator-of-wrong-clocks-in-a-test",
		KEKs: config.KEKs{KEK: "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="}, AllowHTTP: true, ExtraPorts: config.Ports{Any: true},
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Retention: 720 * time.Hour, DeadLetterRetention: 720 * time.Hour,
		AuditRetention: 17520 * time.Hour, DBConnections: 37, MaxPayload: 256 << 10,
		StartSlots: 1, MaxPerWorkflow: 100, ReconcileEvery: time.Minute, QueueLength: 1000, RunningReplays: 50, MaxHeld: 720 * time.Hour,
	}
	log := slog.New(slog.NewJSONHandler(in.log, nil))
	require.NoError(t, app.Migrate(contextFor(t, startPatience), c, log))
	r := newReceiver(t)
	var hosts []*bundle
	for _, wrong := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		host, err := app.New(t.Context(), app.Options{
			Config: c, Version: "test", Logger: log, API: true, Worker: true, Temporal: client.Options{HostPort: engine, Namespace: namespace},
			Clock: func() time.Time { return time.Now().Add(wrong) },
		})
		require.NoError(t, err)
		require.NoError(t, host.Start(contextFor(t, startPatience)))
		t.Cleanup(host.Stop)
		hosts = append(hosts, &bundle{
			t: t, in: in, client: &apiClient{base: "http://" + host.APIAddr(), key: c.OperatorKey, http: in.http}, tenant: "acme",
		})
	}
	hosts[0].ask(http.StatusCreated, http.MethodPut, "", fieldsOf{"name": "Acme"}, nil)
	const retryIn = 2 * time.Second
	hosts[0].endpoint(r, "/hook", fieldsOf{
		"circuit_breaker": fieldsOf{"enabled": false},
		"retry_policy":    fieldsOf{"strategy": "fixed", "base": retryIn.String(), "jitter": "none", "max_attempts": 5},
	})

	// What is to be delivered later is not early, and comes.
	due := time.Now().Add(5 * time.Second)
	var later []delivery
	for _, host := range hosts {
		_, d := host.postOne("order.paid", `{"later":true}`, "deliver_at", strconv.Quote(due.UTC().Format(time.RFC3339Nano)))
		require.Equal(t, "pending", d.State)
		later = append(later, d)
	}
	for n, d := range later {
		d = hosts[(n+1)%2].waitState(d.ID, "delivered")
		requests := r.of(d.EventID)
		require.Len(t, requests, 1)
		require.Greater(t, requests[0].ReceivedAt, due.Add(-200*time.Millisecond))
		require.Less(t, requests[0].ReceivedAt, due.Add(patience))
	}

	const events = 20
	r.Script("/hook", slices.Repeat([]receivertest.Step{{Status: http.StatusServiceUnavailable}}, events)...)
	var sent []delivery
	for n := range events {
		_, d := hosts[n%2].postOne("order.paid", fmt.Sprintf(`{"n":%d}`, n), "external_id", fmt.Sprintf("%q", fmt.Sprintf("order-%d", n)))
		sent = append(sent, d)
	}
	for n, d := range sent {
		d = hosts[(n+1)%2].waitState(d.ID, "delivered")
		require.WithinDuration(t, time.Now(), d.CreatedAt.Time, time.Minute)
		require.WithinDuration(t, time.Now(), d.CompletedAt.Time, time.Minute)
		requests := r.of(d.EventID)
		require.Len(t, requests, d.Attempts)
		for n := range requests[1:] {
			apart := requests[n+1].ReceivedAt.Sub(requests[n].ReceivedAt)
			require.Greater(t, apart, retryIn-200*time.Millisecond)
			require.Less(t, apart, patience)
		}
	}
	require.Equal(t, 2*events+len(later), r.Count(), "every refusal led to one more")
}
