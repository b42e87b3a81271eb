package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rate holds in every second while one worker after the other is killed: the new owner of an endpoint does not send at once what the old one
// might have sent. Deliveries go on soon after each kill.
func TestRateHoldsOverKills(t *testing.T) {
	t.Parallel()
	needsTime(t, "five kills under load take a minute")
	const (
		perSecond = 20
		kills     = 5
		events    = 100 // for each kill: five seconds
		jitter    = 50 * time.Millisecond
		soon      = 10 * time.Second
	)
	engine, namespace := sharedTemporal(t), "rate-"+time.Now().Format("150405.000000")
	makeNamespace(contextFor(t, patience), t, engine, namespace)
	s := newSplit(t, engine, namespace, false)
	b := newBundle(t, nil, &apiClient{
		base: "http://everpost.test", key: s.env["EVERPOST_OPERATOR_KEY"], http: &http.Client{Transport: watched(s), Timeout: 30 * time.Second},
	}, "acme")
	rated := newReceiver(t)
	b.endpoint(rated, "/rated", fieldsOf{"event_types": []string{"a.rated"}, "timeout": "2s", "rate_limit_per_second": perSecond})
	var acked []string
	for n := range kills {
		acked = append(acked, b.burst("a.rated", events)...)
		_, err := rated.WaitFor(contextFor(t, patience), rated.Count()+perSecond)
		require.NoError(t, err, "kill %d: nothing is delivered", n)
		killed := s.workers[n%len(s.workers)]
		killed.kill()
		killed.start()
	}
	over := time.Now()
	eventually(contextFor(t, longRecovery), t, func() string {
		arrived := map[string]bool{}
		for _, r := range rated.Requests() {
			arrived[r.WebhookID()] = true
		}
		if len(arrived) == len(acked) {
			return ""
		}
		return fmt.Sprintf("%d of %d have arrived", len(arrived), len(acked))
	})
	requests := rated.Requests()
	gap := time.Duration(0)
	for i := 1; i < len(requests); i++ {
		gap = max(gap, requests[i].ReceivedAt.Sub(requests[i-1].ReceivedAt))
	}
	t.Logf("%d requests over %d kills; at most %d within a second; nothing for %.1f s at most; the last one %.1f s after the load", len(requests), kills,
		most(requests, time.Second), gap.Seconds(), requests[len(requests)-1].ReceivedAt.Sub(over).Seconds())
	require.LessOrEqual(t, most(requests, time.Second-jitter), perSecond)
	require.Less(t, gap, soon, "deliveries wait all the time")
}
