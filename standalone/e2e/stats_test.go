package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// counted are the totals of statistics.
type counted struct {
	Attempts       map[string]int  `json:"attempts"`
	FirstAttempts  int             `json:"first_attempts"`
	FirstDelivered int             `json:"first_delivered"`
	FilterMatched  int             `json:"filter_matched"`
	Filtered       int             `json:"filtered"`
	Ended          map[string]int  `json:"ended"`
	Latency        map[string]*int `json:"latency_ms"`
}

// requireStats waits until statistics are as wanted, and requires that their latencies are known.
func (b *bundle) requireStats(want counted, get func() answer) {
	b.t.Helper()
	eventually(contextFor(b.t, patience), b.t, func() string {
		var got struct {
			Totals counted `json:"totals"`
		}
		require.NoError(b.t, get().into(&got))
		latency := got.Totals.Latency
		got.Totals.Latency = nil
		if fmt.Sprint(got.Totals) != fmt.Sprint(want) {
			return fmt.Sprintf("the statistics are %v, not %v", got.Totals, want)
		}
		require.NotNil(b.t, latency["p50"])
		require.NotNil(b.t, latency["p99"])
		return ""
	})
}

func (b *bundle) stats(query string) func() answer {
	return func() answer { return b.ask(http.StatusOK, http.MethodGet, "/stats"+query, nil, nil) }
}

// attemptsBy has a number for each class of outcomes.
func attemptsBy(delivered, http4xx, http5xx int) map[string]int {
	return map[string]int{
		"delivered": delivered, "http_4xx": http4xx, "http_5xx": http5xx, "timeout": 0, "connection": 0, "dns": 0, "tls": 0, "other": 0,
	}
}

// The statistics show exactly the attempts that were made and the ends of deliveries, also those that were counted just before
// the process ended; and the health of an endpoint knows them after a restart.
func TestStatistics(t *testing.T) {
	t.Parallel()
	in, r := ownInstance(t, nil), newReceiver(t)
	b := newBundle(t, in, in.client(), tenantName(t.Name()))
	busy := b.endpoint(r, "/busy", fieldsOf{"event_types": []string{"order.*"}})
	refusing := b.endpoint(r, "/refusing", fieldsOf{"event_types": []string{"user.*"}})
	unavailable := receivertest.Step{Status: http.StatusServiceUnavailable}
	r.Script("/busy", unavailable, unavailable, unavailable)
	r.Script("/refusing", receivertest.Step{Status: http.StatusBadRequest})

	const events = 10
	var ids []string
	for range events {
		_, d := b.postOne("order.paid", `{}`)
		ids = append(ids, d.ID)
	}
	_, refused := b.postOne("user.created", `{}`)
	firstDelivered := 0
	for _, id := range ids {
		if b.waitState(id, "delivered").Attempts == 1 {
			firstDelivered++
		}
	}
	b.waitState(refused.ID, "dead_lettered")
	b.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+refused.ID+"/discard", nil, nil)
	b.waitState(refused.ID, "discarded")
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+busy.ID+"/pause", nil, nil)
	_, held := b.postOne("order.paid", `{}`)
	b.waitState(held.ID, "held")
	b.command(http.StatusAccepted, held.ID, "cancel", nil)
	b.waitState(held.ID, "cancelled")
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+busy.ID+"/test", nil, nil) // is not counted
	require.Equal(t, events+3+1+1, r.Count())

	all := counted{
		Attempts: attemptsBy(events, 1, 3), FirstAttempts: events + 1, FirstDelivered: firstDelivered,
		Ended: map[string]int{"delivered": events, "dead_lettered": 1, "cancelled": 1, "discarded": 1},
	}
	b.requireStats(all, b.stats(""))
	b.requireStats(all, func() answer {
		got, err := b.client.call(contextFor(t, patience), http.MethodGet, "/v1/stats", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, got.status)
		return got
	})
	require.Regexp(t, fmt.Sprintf(`(?m)^total +%d +1 +3 +0 `, events), b.run("stats", "--step=1m"))

	// What is counted within the last seconds before the end is written then.
	_, late := b.postOne("user.created", `{}`)
	b.waitState(late.ID, "delivered")
	require.NoError(t, in.stop())
	in.restart(t)
	b.requireStats(counted{
		Attempts: attemptsBy(1, 1, 0), FirstAttempts: 2, FirstDelivered: 1,
		Ended: map[string]int{"delivered": 1, "dead_lettered": 1, "cancelled": 0, "discarded": 1},
	}, b.stats("?endpoint_id="+refusing.ID))
	for id, want := range map[string][2]float64{refusing.ID: {0.5, 0}, busy.ID: {0.7692, 0.3}} {
		var health struct {
			SuccessRate *float64 `json:"success_rate"`
			RetryRatio  *float64 `json:"retry_ratio"`
		}
		require.NoError(t, json.Unmarshal(b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+id+"/health", nil, nil).body, &health))
		require.NotNil(t, health.SuccessRate)
		require.Equal(t, want, [2]float64{*health.SuccessRate, *health.RetryRatio})
	}
}

// What a filter matched and kept out is counted once for each event that is stored, whichever process accepted it.
func TestStatisticsOfFilters(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook", fieldsOf{"filter": fieldsOf{"payload": fieldsOf{"total": fieldsOf{"$gt": 100}}}})
	for _, total := range []int{99, 100, 101, 100} { // the last is a repetition
		fields := fieldsOf{"type": "order.paid", "external_id": fmt.Sprint("order-", total), "payload": fieldsOf{"total": total}}
		got, err := b.client.call(contextFor(t, patience), http.MethodPost, b.path("/events"), fields)
		require.NoError(t, err)
		require.Less(t, got.status, 300, "%s", got.body)
	}
	b.requireStats(counted{
		Attempts: attemptsBy(1, 0, 0), FirstAttempts: 1, FirstDelivered: 1, FilterMatched: 1, Filtered: 2,
		Ended: map[string]int{"delivered": 1, "dead_lettered": 0, "cancelled": 0, "discarded": 0},
	}, b.stats("?endpoint_id="+ep.ID))
}
