package webhook

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The summary of every condition.
func TestHealthSummary(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 10, 0, 0, time.UTC)
	at := now.Add
	well := Observation{Circuit: CircuitClosed, Rate: 80, Delivered: 985, Failed: 15, Latency: 120 * time.Millisecond, SuccessStreak: 3}
	with := func(change func(*Observation)) Observation {
		s := well
		change(&s)
		return s
	}
	open := with(func(s *Observation) {
		s.Circuit, s.Since, s.NextProbe, s.DeferReason, s.Rate = CircuitOpen, at(-7*time.Minute), at(20100*time.Millisecond), ReasonCircuitOpen, 0
		s.Why = "14 of 20 requests failed, the last with http_503"
	})
	halfOpen := open
	halfOpen.Circuit, halfOpen.InFlight = CircuitHalfOpen, 1
	barred := func(reason string, d time.Duration) Observation {
		return with(func(s *Observation) { s.BlockedUntil, s.BlockReason, s.DeferReason = at(d), reason, reason })
	}
	active, paused, disabled := Endpoint{MaxInFlight: 10, RateLimit: 5}, Endpoint{State: EndpointPaused}, Endpoint{State: EndpointDisabled}
	paused.StateReason, disabled.StateReason = "paused by hand", "it answered 410"
	one := active
	one.MaxInFlight = 1
	ago := at(-12 * time.Minute)

	for name, c := range map[string]struct {
		Health
		want string
	}{
		"well": {
			Health{Endpoint: active, Observed: well},
			"active and well: 98.5 % of the attempts of the last 15 min delivered, answers take 120 ms; nothing waits",
		},
		"not so well": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.Failed, s.Latency = 500, 0 })},
			"active: 66.3 % of the attempts of the last 15 min delivered; nothing waits",
		},
		"nothing known": {Health{Endpoint: active, Observed: Aggregate(nil)}, "active; no trouble is known; nothing waits"},
		"idle since long": {
			Health{Endpoint: active, Observed: Observation{Circuit: CircuitClosed, Latency: time.Millisecond}},
			"active; no trouble is known; nothing waits",
		},
		"failed once": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.FailureStreak = 1 })},
			"active, but the last attempt failed; nothing waits",
		},
		"failed often": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.FailureStreak = 12 })},
			"active, but the last 12 attempts failed; nothing waits",
		},
		"slow": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.Latency, s.InFlight = 4210*time.Millisecond, 3 })},
			"active but slow, answers take 4.2 s; 3 in flight; nothing waits",
		},
		"at its cap": {
			Health{
				Endpoint: active, Observed: with(func(s *Observation) { s.InFlight, s.DeferReason = 10, ReasonInFlight }),
				Backlog: Backlog{Deferred: 200, Oldest: ago},
			},
			"active, at its cap of 10 requests at a time: 80 requests per second; 10 in flight; 200 waiting for their turn; the oldest since 11:58 UTC",
		},
		"slow and full": {
			Health{Endpoint: one, Observed: with(func(s *Observation) {
				s.InFlight, s.DeferReason, s.Latency, s.Rate = 1, ReasonInFlight, 12*time.Second, 0.083
			}), Backlog: Backlog{Deferred: 1, Oldest: ago}},
			"active but slow, answers take 12 s, at its cap of 1 request at a time: 5 requests per minute; 1 in flight; " +
				"1 waiting for its turn; the oldest since 11:58 UTC",
		},
		"at its host's cap": {
			Health{
				Endpoint: active, Observed: with(func(s *Observation) { s.InFlight, s.DeferReason, s.Rate = 1, ReasonHost, 2 }),
				Backlog: Backlog{Deferred: 7, Oldest: ago},
			},
			"active, waiting for its host, whose cap all endpoints there share: 2 requests per second; " +
				"1 in flight; 7 waiting for their turn; the oldest since 11:58 UTC",
		},
		"slow, and at its host's cap": {
			Health{Endpoint: one, Observed: with(func(s *Observation) { s.DeferReason, s.Latency, s.Rate = ReasonHost, 12*time.Second, 0.083 })},
			"active but slow, answers take 12 s, waiting for its host, whose cap all endpoints there share: " +
				"5 requests per minute; nothing waits",
		},
		"at its rate": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.DeferReason = ReasonRate }), Backlog: Backlog{Deferred: 3, Retrying: 1}},
			"active, at its rate of 5 requests per second; 4 waiting (3 for their turn, 1 for a retry)",
		},
		"circuit open": {
			Health{Endpoint: active, Observed: open, Backlog: Backlog{Deferred: 212}},
			"circuit open since 12:03 UTC after 14 of 20 requests failed, the last with 503; next probe in 21 s; 212 waiting for their turn",
		},
		"open, timeouts": {
			Health{Endpoint: active, Observed: func() Observation {
				s := open
				s.Why, s.Since, s.NextProbe = "20 of 20 requests failed, the last with timeout_headers", at(-24*time.Hour), at(9*time.Minute+time.Second)
				return s
			}()},
			"circuit open since 30 Jan, 12:10 UTC after 20 of 20 requests failed, the last with timeout_headers; next probe in 10 min; nothing waits",
		},
		"open, probe due": {
			Health{Endpoint: active, Observed: func() Observation {
				s := open
				s.Why, s.Since, s.NextProbe = "", at(-32*24*time.Hour), now
				return s
			}()},
			"circuit open since 30 Dec 2025, 12:10 UTC; the next delivery is the probe; nothing waits",
		},
		"half open": {
			Health{Endpoint: active, Observed: halfOpen, Backlog: Backlog{Deferred: 4, Held: 1890, Oldest: ago}},
			"circuit half open since 12:03 UTC after 14 of 20 requests failed, the last with 503; a probe is under way; 1 in flight; " +
				"4 waiting for their turn; 1890 held, being released oldest first; the oldest since 11:58 UTC",
		},
		"just closed": {
			Health{Endpoint: active, Observed: with(func(s *Observation) {
				s.Since, s.Recovering, s.Rate, s.DeferReason = at(-time.Minute), true, 2.5, ReasonRate
			}), Backlog: Backlog{Held: 1}},
			"circuit closed again since 12:09 UTC, recovering: 2.5 requests per second and rising; 1 held, being released oldest first",
		},
		"after a pause": {
			Health{Endpoint: active, Observed: with(func(s *Observation) { s.Recovering, s.Rate = true, 1 })},
			"recovering: 1 request per second and rising; nothing waits",
		},
		"Retry-After": {
			Health{Endpoint: active, Observed: barred(ReasonRetryAfter, 21*time.Second), Backlog: Backlog{Retrying: 1, NextAt: at(22 * time.Second)}},
			"the receiver asked for a pause (429 with Retry-After); next request in 21 s; 1 waiting for a retry in 22 s",
		},
		"rate-limit hint": {
			Health{Endpoint: active, Observed: barred(ReasonRateLimitHint, 59*time.Minute+time.Second)},
			"the receiver says that its rate limit is used up; next request in 60 min; nothing waits",
		},
		"another pause": {
			Health{Endpoint: active, Observed: barred("new", 30*time.Hour)}, "the receiver asked for a pause; next request in 30 h; nothing waits",
		},
		"pause has ended": {
			Health{Endpoint: active, Observed: barred(ReasonRetryAfter, 0)},
			"active and well: 98.5 % of the attempts of the last 15 min delivered, answers take 120 ms; nothing waits",
		},
		"retries": {
			Health{Endpoint: active, Observed: Aggregate(nil), Backlog: Backlog{Retrying: 12, NextAt: at(49 * time.Hour), Oldest: ago}},
			"active; no trouble is known; 12 waiting for a retry, the next in 3 days; the oldest since 11:58 UTC",
		},
		"retries, one is due": {
			Health{Endpoint: active, Observed: Aggregate(nil), Backlog: Backlog{Retrying: 12, NextAt: now}},
			"active; no trouble is known; 12 waiting for a retry",
		},
		"scheduled": {
			Health{Endpoint: active, Observed: Aggregate(nil), Backlog: Backlog{Retrying: 2, Scheduled: 3, NextAt: at(time.Second)}},
			"active; no trouble is known; 2 waiting for a retry; 3 scheduled",
		},
		"more": {
			Health{Endpoint: active, Observed: open, Backlog: Backlog{Retrying: 1, Deferred: 9999, MoreWaiting: true, Held: 10_000, MoreHeld: true}},
			"circuit open since 12:03 UTC after 14 of 20 requests failed, the last with 503; next probe in 21 s; 10000+ waiting; " +
				"10000+ held, being released oldest first",
		},
		"more held": {
			Health{Endpoint: paused, Observed: well, Backlog: Backlog{Held: 10_000, MoreHeld: true}},
			"paused by hand: nothing is sent; 10000+ held until it is resumed",
		},
		"paused":          {Health{Endpoint: paused, Observed: open}, "paused by hand: nothing is sent; nothing waits"},
		"paused, no word": {Health{Endpoint: Endpoint{State: EndpointPaused}}, "paused: nothing is sent; nothing waits"},
		"disabled": {
			Health{Endpoint: disabled, Observed: open, Backlog: Backlog{Retrying: 3, Held: 7, Oldest: ago}},
			"disabled (it answered 410): nothing is sent; 3 waiting, held when due; 7 held until it is resumed; the oldest since 11:58 UTC",
		},
	} {
		require.Equal(t, c.want, c.Summary(now), name)
	}
}

func TestHealthWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1: "1 s", time.Second: "1 s", 99 * time.Second: "99 s", 100 * time.Second: "2 min", 99 * time.Minute: "99 min", 100 * time.Minute: "2 h",
		47 * time.Hour: "47 h", 47*time.Hour + 1: "2 days", 72 * time.Hour: "3 days",
	} {
		require.Equal(t, want, timeUntil(d), d)
	}
	for d, want := range map[time.Duration]string{
		1: "less than 1 ms", time.Millisecond: "1 ms", 999 * time.Millisecond: "999 ms",
		time.Second: "1 s", 1250 * time.Millisecond: "1.2 s", 12300 * time.Millisecond: "12 s",
	} {
		require.Equal(t, want, latency(d), d)
	}
	for rate, want := range map[float64]string{
		10_000: "10000 requests per second", 9.96: "10 requests per second", 1: "1 request per second", 0.1: "0.1 requests per second",
		1.0 / 60: "1 request per minute", 0.05: "3 requests per minute", 0.01: "0.6 requests per minute",
	} {
		require.Equal(t, want, perSecond(rate), rate)
	}
	for ratio, want := range map[float64]string{0: "0 %", 0.0001: "0.1 %", 0.5: "50 %", 0.6666: "66.7 %", 0.9999: "99.9 %", 1: "100 %"} {
		require.Equal(t, want, percent(ratio), ratio)
	}
}

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
