package webhook

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The aggregate of several processes does not depend on their order.
func TestTogether(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	require.Equal(t, Observation{Circuit: CircuitClosed}, Aggregate(nil))
	all := []Observation{
		{
			Circuit: CircuitClosed, Since: at(3), Rate: 10, Latency: 100 * time.Millisecond, Delivered: 3, First: 3, InFlight: 1, SuccessStreak: 3,
			Timeout: 15 * time.Second, BlockedUntil: at(50), BlockReason: ReasonRetryAfter, DeferReason: ReasonRetryAfter,
		},
		{
			Circuit: CircuitOpen, Since: at(20), Why: "second", NextProbe: at(30), DeferReason: ReasonCircuitOpen, Timeout: 5 * time.Second,
			Failed: 2, First: 1, Retries: 1, FailureStreak: 2,
		},
		{Circuit: CircuitOpen, Since: at(10), Why: "first", NextProbe: at(40), BlockedUntil: at(60), BlockReason: ReasonRateLimitHint},
		{Circuit: CircuitHalfOpen, Since: at(1), Why: "third", Latency: 500 * time.Millisecond, InFlight: 1, Recovering: true, DeferReason: ReasonCircuitOpen},
	}
	require.Equal(t, Observation{
		Circuit: CircuitOpen, Since: at(10), Why: "first", NextProbe: at(30),
		BlockedUntil: at(60), BlockReason: ReasonRateLimitHint, DeferReason: ReasonCircuitOpen,
		Latency: 200 * time.Millisecond, Rate: 10, Recovering: true, InFlight: 2, Delivered: 3, Failed: 2, First: 4, Retries: 1,
		Timeout: 15 * time.Second, SuccessStreak: 3, FailureStreak: 2,
	}, Aggregate(all))
	all = []Observation{{Circuit: CircuitClosed, Since: at(5)}, {Circuit: CircuitClosed, Since: at(3)}, {Circuit: CircuitClosed}}
	require.Equal(t, at(5), Aggregate(all).Since,
		"the last recovery")

	states := []CircuitState{CircuitClosed, CircuitHalfOpen, CircuitOpen}
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) Observation {
			s := Observation{
				Circuit: rapid.SampledFrom(states).Draw(t, "circuit"), InFlight: rapid.IntRange(0, 5).Draw(t, "in flight"),
				Latency: time.Duration(rapid.IntRange(0, 3).Draw(t, "latency")) * time.Second, Delivered: rapid.IntRange(0, 5).Draw(t, "delivered"),
			}
			if since := rapid.IntRange(0, 4).Draw(t, "since"); since > 0 {
				s.Since = at(since)
			}
			if s.Circuit == CircuitOpen {
				s.NextProbe = at(rapid.IntRange(1, 5).Draw(t, "probe"))
			}
			return s
		})
		seen := rapid.SliceOfN(one, 1, 4).Draw(t, "seen")
		shuffled := rapid.Permutation(seen).Draw(t, "shuffled")
		a, b := Aggregate(seen), Aggregate(shuffled)
		require.InDelta(t, a.Latency, b.Latency, 1)
		a.Latency, b.Latency = 0, 0
		require.Equal(t, a, b)
	})
}

// The JSON form is read back unchanged, and zero fields are omitted.
func TestSeenAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 12, 10, 0, 5000, time.UTC)
	s := Observation{
		Circuit: CircuitOpen, Since: at, Why: "w", NextProbe: at, BlockedUntil: at, BlockReason: "b", DeferReason: "f", Latency: 1, Rate: 2.5, Recovering: true,
		InFlight: 1, Delivered: 2, Failed: 3, First: 4, Retries: 5, SuccessStreak: 6, FailureStreak: 7, Timeout: 8,
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var read Observation
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, s, read)
	text, err = json.Marshal(Observation{Circuit: CircuitClosed})
	require.NoError(t, err)
	require.JSONEq(t, `{"circuit":"closed","rate":0}`, string(text))
}

// The timeout in force is the endpoint's own, unless it is automatic.
func TestHealthTimeout(t *testing.T) {
	t.Parallel()
	h := Health{Endpoint: Endpoint{Timeout: 7 * time.Second}, Observed: Observation{Timeout: 5 * time.Second}}
	require.Equal(t, 7*time.Second, h.Timeout(), "an observed timeout from before it was set is ignored")
	h.Endpoint.AutoTimeout = true
	require.Equal(t, 5*time.Second, h.Timeout())
	h.Observed.Timeout = 0
	require.Zero(t, h.Timeout(), "unknown")
}

func TestHealthRate(t *testing.T) {
	t.Parallel()
	e := Endpoint{RateLimit: 5}
	require.InDelta(t, 5, (&Health{Endpoint: e}).Rate(), 0, "only its rate limit applies")
	require.InDelta(t, 2, (&Health{Endpoint: e, Known: true, Observed: Observation{Rate: 2}}).Rate(), 0)
	e.State = EndpointPaused
	require.Zero(t, (&Health{Endpoint: e, Known: true, Observed: Observation{Rate: 2}}).Rate())
	require.Zero(t, (&Observation{Retries: 0}).RetryRatio())
	require.InDelta(t, 3, (&Observation{Retries: 3}).RetryRatio(), 0)
}
