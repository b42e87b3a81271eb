package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// The summary of every condition.
func TestHealthSummary(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 10, 0, 0, time.UTC)
	at := now.Add
	well := webhook.Observation{Circuit: webhook.CircuitClosed, Rate: 80, Delivered: 985, Failed: 15, Latency: 120 * time.Millisecond, SuccessStreak: 3}
	with := func(change func(*webhook.Observation)) webhook.Observation {
		s := well
		change(&s)
		return s
	}
	open := with(func(s *webhook.Observation) {
		s.Circuit, s.Since, s.NextProbe = webhook.CircuitOpen, at(-7*time.Minute), at(20100*time.Millisecond)
		s.DeferReason, s.Rate = webhook.ReasonCircuitOpen, 0
		s.Why = "14 of 20 requests failed, the last with http_503"
	})
	halfOpen := open
	halfOpen.Circuit, halfOpen.InFlight, halfOpen.ProbeOver = webhook.CircuitHalfOpen, 1, at(5*time.Second)
	noProbe := halfOpen
	noProbe.ProbeOver = time.Time{}
	barred := func(reason string, d time.Duration) webhook.Observation {
		return with(func(s *webhook.Observation) { s.BlockedUntil, s.BlockReason, s.DeferReason = at(d), reason, reason })
	}
	active := webhook.Endpoint{MaxInFlight: 10, RateLimit: 5}
	paused := webhook.Endpoint{State: webhook.EndpointPaused, StateReason: "paused by hand"}
	disabled := webhook.Endpoint{State: webhook.EndpointDisabled, StateReason: "it answered 410"}
	one := active
	one.MaxInFlight = 1
	ago := at(-12 * time.Minute)

	for name, c := range map[string]struct {
		webhook.Health
		want string
	}{
		"well": {
			webhook.Health{Endpoint: active, Observed: well},
			"active and healthy: 98.5 % of the attempts of the last 15 min delivered, answers take 120 ms; nothing waits",
		},
		"not so well": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) { s.Failed, s.Latency = 500, 0 })},
			"active: 66.3 % of the attempts of the last 15 min delivered; nothing waits",
		},
		"nothing known": {webhook.Health{Endpoint: active, Observed: webhook.Aggregate(nil)}, "active; no failure on record; nothing waits"},
		"the owner does not answer": {
			webhook.Health{Endpoint: active, Observed: halfOpen, Stale: true},
			"circuit half open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; a probe is under way; 1 in flight; " +
				"the worker that enforces its limits did not answer in time, so details may be missing or up to 30 s old; nothing waits",
		},
		"paused, and the owner does not answer": {
			webhook.Health{Endpoint: paused, Observed: well, Stale: true}, "paused by hand: nothing is sent; nothing waits",
		},
		"idle since long": {
			webhook.Health{Endpoint: active, Observed: webhook.Observation{Circuit: webhook.CircuitClosed, Latency: time.Millisecond}},
			"active; no failure on record; nothing waits",
		},
		"failed once of many": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) { s.FailureStreak = 1 })},
			"active and healthy: 98.5 % of the attempts of the last 15 min delivered, answers take 120 ms; nothing waits",
		},
		"failed once": {
			webhook.Health{Endpoint: active, Observed: webhook.Observation{Failed: 1, FailureStreak: 1}},
			"active, but the last attempt failed; nothing waits",
		},
		"failed once, and was sent nothing since": {
			webhook.Health{
				Endpoint: active, Observed: webhook.Observation{FailureStreak: 1, LastFailure: "http_401", LastFailedAt: at(-2 * time.Hour)},
			},
			"active, but the last attempt failed with 401 Unauthorized at 10:10:00 UTC, 2 h ago; nothing waits",
		},
		"failed once after it had delivered, and was sent nothing since": {
			webhook.Health{Endpoint: active, Observed: webhook.Observation{
				FailureStreak: 1, LastFailure: "http_400", LastFailedAt: at(-2 * time.Hour), LastSuccess: at(-3 * time.Hour),
			}},
			"active; the last failure on record is 400 Bad Request at 10:10:00 UTC, 2 h ago; nothing waits",
		},
		"failed often": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) { s.FailureStreak = 12 })},
			"active, but the last 12 attempts failed; nothing waits",
		},
		"failed once, and why": {
			webhook.Health{
				Endpoint: active, Observed: webhook.Observation{Failed: 1, FailureStreak: 1}, LastFailure: &webhook.LastFailure{Reason: "http_503"},
			},
			"active, but the last attempt failed with 503 Service Unavailable; nothing waits",
		},
		"failed often, and why": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.FailureStreak = 3 }),
				LastFailure: &webhook.LastFailure{Reason: "connect_refused"},
			},
			"active, but the last 3 attempts failed, the last with a refused connection; nothing waits",
		},
		"slow": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) { s.Latency, s.InFlight = 4210*time.Millisecond, 3 })},
			"active but slow, answers take 4.2 s; 3 in flight; nothing waits",
		},
		"at its cap": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.InFlight, s.DeferReason = 10, webhook.ReasonInFlight }),
				Backlog: webhook.Backlog{Deferred: 200, Oldest: ago},
			},
			"active, at its cap of 10 requests at a time: 80 requests per second; 10 in flight; 200 waiting for a turn; the oldest since 11:58 UTC",
		},
		"slow and full": {
			webhook.Health{Endpoint: one, Observed: with(func(s *webhook.Observation) {
				s.InFlight, s.DeferReason, s.Latency, s.Rate = 1, webhook.ReasonInFlight, 12*time.Second, 0.083
			}), Backlog: webhook.Backlog{Deferred: 1, Oldest: ago}},
			"active but slow, answers take 12 s, at its cap of 1 request at a time: 5 requests per minute; 1 in flight; " +
				"1 waiting for a turn; the oldest since 11:58 UTC",
		},
		"at its host's cap": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.InFlight, s.DeferReason, s.Rate = 1, webhook.ReasonHost, 2 }),
				Backlog: webhook.Backlog{Deferred: 7, Oldest: ago},
			},
			"active, waiting for its host, whose cap all endpoints there share: 2 requests per second; " +
				"1 in flight; 7 waiting for a turn; the oldest since 11:58 UTC",
		},
		"slow, and at its host's cap": {
			webhook.Health{Endpoint: one, Observed: with(func(s *webhook.Observation) {
				s.DeferReason, s.Latency, s.Rate = webhook.ReasonHost, 12*time.Second, 0.083
			})},
			"active but slow, answers take 12 s, waiting for its host, whose cap all endpoints there share: " +
				"5 requests per minute; nothing waits",
		},
		"at its rate": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.DeferReason = webhook.ReasonRate }),
				Backlog: webhook.Backlog{Deferred: 3, Retrying: 1},
			},
			"active, at its rate of 5 requests per second; 4 waiting (3 for a turn, 1 to be sent again)",
		},
		"a backlog that is not sent in time": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.Delivered, s.Failed, s.DeferReason = 45, 0, webhook.ReasonRate }),
				Backlog: webhook.Backlog{Held: 9000, MoreHeld: true},
			},
			"active, at its rate of 5 requests per second; more than 9000 held, the oldest go first; " +
				"at the pace of the last 15 min the newest waits for more than 2 days, and each is given up after 3 days",
		},
		"a filter that matches nothing": {
			webhook.Health{
				Endpoint: func() webhook.Endpoint {
					e := active
					e.Filter = &filter.Filter{}
					return e
				}(),
				Verdicts: webhook.Counts{Filtered: 1234},
			},
			"active; no failure on record; nothing waits; its filter matched none of the last 1234 events of its types",
		},
		"a filter that was removed": {
			webhook.Health{Endpoint: active, Verdicts: webhook.Counts{Filtered: 1234}},
			"active; no failure on record; nothing waits",
		},
		"a backlog that is sent in time": {
			webhook.Health{
				Endpoint: active, Observed: with(func(s *webhook.Observation) { s.Delivered, s.Failed, s.DeferReason = 450, 0, webhook.ReasonRate }),
				Backlog: webhook.Backlog{Held: 9000},
			},
			"active, at its rate of 5 requests per second; 9000 held, the oldest go first",
		},
		"circuit open": {
			webhook.Health{Endpoint: active, Observed: open, Backlog: webhook.Backlog{Deferred: 212}},
			"circuit open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; next probe in 21 s; 212 waiting for a turn",
		},
		"open, timeouts": {
			webhook.Health{Endpoint: active, Observed: func() webhook.Observation {
				s := open
				s.Why, s.Since, s.NextProbe = "20 of 20 requests failed, the last with timeout_headers", at(-24*time.Hour), at(9*time.Minute+time.Second)
				return s
			}()},
			"circuit open since 30 Jan 12:10 UTC after 20 of 20 requests failed, the last with no answer in time; next probe in 10 min; nothing waits",
		},
		"open, probe due": {
			webhook.Health{Endpoint: active, Observed: func() webhook.Observation {
				s := open
				s.Why, s.Since, s.NextProbe = "", at(-32*24*time.Hour), now
				return s
			}()},
			"circuit open since 30 Dec 2025 12:10 UTC; the next delivery is the probe; nothing waits",
		},
		"half open, the probe has ended": {
			webhook.Health{Endpoint: active, Observed: noProbe},
			"circuit half open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; " +
				"next probe in 21 s; 1 in flight; nothing waits",
		},
		"half open": {
			webhook.Health{Endpoint: active, Observed: halfOpen, Backlog: webhook.Backlog{Deferred: 4, Held: 1890, Oldest: ago}},
			"circuit half open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; a probe is under way; 1 in flight; " +
				"4 waiting for a turn; 1890 held, the oldest go first; the oldest since 11:58 UTC",
		},
		"just closed": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) {
				s.Since, s.Recovering, s.Rate, s.DeferReason = at(-time.Minute), true, 2.5, webhook.ReasonRate
			}), Backlog: webhook.Backlog{Held: 1}},
			"circuit closed again since 12:09 UTC, recovering: 2.5 requests per second and rising; 1 held, the oldest go first",
		},
		"after a pause": {
			webhook.Health{Endpoint: active, Observed: with(func(s *webhook.Observation) { s.Recovering, s.Rate = true, 1 })},
			"recovering: 1 request per second and rising; nothing waits",
		},
		"Retry-After": {
			webhook.Health{
				Endpoint: active, Observed: barred(webhook.ReasonRetryAfter, 21*time.Second),
				Backlog: webhook.Backlog{Retrying: 1, NextAt: at(22 * time.Second)},
			},
			"the receiver asked for a pause (429 with Retry-After); next request in 21 s; 1 waiting to be sent again in 22 s",
		},
		"rate-limit hint": {
			webhook.Health{Endpoint: active, Observed: barred(webhook.ReasonRateLimitHint, 59*time.Minute+time.Second)},
			"the receiver says that its rate limit is used up; next request in 60 min; nothing waits",
		},
		"another pause": {
			webhook.Health{Endpoint: active, Observed: barred("new", 30*time.Hour)}, "the receiver asked for a pause; next request in 30 h; nothing waits",
		},
		"pause has ended": {
			webhook.Health{Endpoint: active, Observed: barred(webhook.ReasonRetryAfter, 0)},
			"active and healthy: 98.5 % of the attempts of the last 15 min delivered, answers take 120 ms; nothing waits",
		},
		"retries": {
			webhook.Health{Endpoint: active, Observed: webhook.Aggregate(nil), Backlog: webhook.Backlog{Retrying: 12, NextAt: at(49 * time.Hour), Oldest: ago}},
			"active; no failure on record; 12 waiting to be sent again, the next in 3 days; the oldest since 11:58 UTC",
		},
		"retries, one is due": {
			webhook.Health{Endpoint: active, Observed: webhook.Aggregate(nil), Backlog: webhook.Backlog{Retrying: 12, NextAt: now}},
			"active; no failure on record; 12 waiting to be sent again",
		},
		"scheduled": {
			webhook.Health{Endpoint: active, Observed: webhook.Aggregate(nil), Backlog: webhook.Backlog{Retrying: 2, Scheduled: 3, NextAt: at(time.Second)}},
			"active; no failure on record; 2 waiting to be sent again; 3 scheduled",
		},
		"more": {
			webhook.Health{
				Endpoint: active, Observed: open,
				Backlog: webhook.Backlog{Retrying: 1, Deferred: 9999, MoreWaiting: true, Held: 10_000, MoreHeld: true},
			},
			"circuit open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; " +
				"next probe in 21 s; more than 10000 waiting; " +
				"more than 10000 held, the oldest go first",
		},
		"more held": {
			webhook.Health{Endpoint: paused, Observed: well, Backlog: webhook.Backlog{Held: 10_000, MoreHeld: true}},
			"paused by hand: nothing is sent; more than 10000 held until it is resumed",
		},
		"paused":          {webhook.Health{Endpoint: paused, Observed: open}, "paused by hand: nothing is sent; nothing waits"},
		"paused, no word": {webhook.Health{Endpoint: webhook.Endpoint{State: webhook.EndpointPaused}}, "paused: nothing is sent; nothing waits"},
		"disabled": {
			webhook.Health{Endpoint: disabled, Observed: open, Backlog: webhook.Backlog{Retrying: 3, Held: 7, Oldest: ago}},
			"disabled (it answered 410): nothing is sent; 3 waiting until it is resumed; 7 held until it is resumed; the oldest since 11:58 UTC",
		},
	} {
		want := strings.ToUpper(c.want[:1]) + c.want[1:] + "."
		require.Equal(t, want, Endpoint(&c.Health, now).Summary, name)
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
		require.Equal(t, want, PerSecond(rate), rate)
	}
	for ratio, want := range map[float64]string{0: "0 %", 0.0001: "0.1 %", 0.5: "50 %", 0.6666: "66.7 %", 0.9999: "99.9 %", 1: "100 %"} {
		require.Equal(t, want, percent(ratio), ratio)
	}
}

// Summaries of operational events are sentences, the reasons of disabling are clauses.
func TestOperationalEvents(t *testing.T) {
	t.Parallel()
	disabled := webhook.Endpoint{State: webhook.EndpointDisabled, StateReason: DisabledGone}
	for want, got := range map[string]string{
		"The delivery was given up after 1 attempt: all attempts used up.": GivenUp(1, "max_attempts"),
		"The delivery was given up after 7 attempts: 400 Bad Request.":     GivenUp(7, "http_400"),
		"The circuit of the endpoint is open: 5 of 5 requests failed, " +
			"the last with 503 Service Unavailable.": CircuitOpened("5 of 5 requests failed, the last with http_503"),
		"The endpoint takes requests again, 5 min after its circuit has " +
			"opened.": Recovered(5*time.Minute + time.Second),
		"Within 15 min the endpoint was sent 1 first attempt and 101 retries.": RetryStorm(1, 101),
		"The endpoint is active again; its held deliveries are released.":      StateChanged(&webhook.Endpoint{}),
		"The endpoint is paused; its deliveries are held until it is resumed.": StateChanged(&webhook.Endpoint{State: webhook.EndpointPaused}),
		"The endpoint is disabled, because the receiver answered 410: it accepts no more events; " +
			"its deliveries are held until it is resumed.": StateChanged(&disabled),
		"The replay is complete: 3 released, of which 2 were delivered and 1 was not at the first " +
			"attempt.": ReplayCompleted(&webhook.Replay{ReplayCounts: webhook.ReplayCounts{Released: 3, Delivered: 2, Failed: 1}}),
		"1 request in a row was refused permanently, the last with 404 Not Found": DisabledRefused(1, "http_404"),
		"10 deliveries were given up within 24 hours and none was delivered, " +
			"the last failed with no answer": DisabledExhausted(10, ""),
	} {
		require.Equal(t, want, got)
	}
}

// What is known of an endpoint's failure is said: whether it is final, what is to be fixed, and what to do with what it has left.
func TestHealthIsParticular(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 10, 0, 0, time.UTC)
	id := webhook.NewEndpointID()
	const (
		credentials = "Check the endpoint's auth and headers, and the secret with which the receiver verifies the signature."
		address     = "Set the endpoint's URL to the address that the redirect names"
		letters     = " Then send its dead letters again."
	)
	failing := func(reason string) webhook.Observation {
		return webhook.Observation{FailureStreak: 3, LastFailure: reason, LastFailedAt: now}
	}
	idle := webhook.Observation{LastFailure: "http_401", LastFailedAt: now}
	lenient := webhook.Endpoint{RetryPolicy: retry.Default()}
	lenient.RetryPolicy.RetryStatuses = []int{401}
	for name, c := range map[string]struct {
		endpoint            webhook.Endpoint
		seen                webhook.Observation
		cause, next, remedy string
		sends               bool
		remedyEnds          string
	}{
		"401": {
			seen: failing("http_401"), next: "401 Unauthorized is final: a delivery that gets it is given up at once.", remedy: credentials + letters,
			sends: true,
		},
		"302": {seen: failing("http_302"), next: "302 Redirect is final", remedy: address, remedyEnds: letters, sends: true},
		"denied": {
			seen: failing("denied_address"), next: "An address that is not allowed is final", remedy: "Give the endpoint a public URL." + letters, sends: true,
		},
		"503": {
			seen: failing("http_503"), next: "Failed deliveries are sent again by the retry policy.", remedy: "Check the receiver: it is overloaded",
		},
		"401 is retried":  {endpoint: lenient, seen: failing("http_401"), next: "Failed deliveries are sent again by the retry policy.", remedy: credentials},
		"not known":       {seen: failing(""), next: "Failed deliveries are sent again by the retry policy; those with a final answer"},
		"401, then quiet": {seen: idle, remedy: credentials + letters, sends: true},
		"disabled": {
			endpoint: webhook.Endpoint{State: webhook.EndpointDisabled}, seen: failing("http_401"),
			remedy: credentials + " Then send it a test, and resume the endpoint.",
		},
		"gone": {
			endpoint: webhook.Endpoint{State: webhook.EndpointDisabled}, seen: failing("http_410"),
			remedy: "The receiver accepts no more events", remedyEnds: "mistake.",
		},
		"disabled, and it is not known why": {
			endpoint: webhook.Endpoint{State: webhook.EndpointDisabled}, remedy: "Fix the receiver, send it a test, then resume the endpoint.",
		},
		"Retry-After": {
			seen:  webhook.Observation{BlockedUntil: now.Add(90 * time.Second), BlockReason: webhook.ReasonRetryAfter},
			cause: "The receiver answered 429 Too Many Requests with Retry-After; that holds for the whole endpoint, until 12:11:30 UTC.",
		},
		"a rate limit": {
			seen:  webhook.Observation{BlockedUntil: now.Add(90 * time.Second), BlockReason: webhook.ReasonRateLimitHint},
			cause: "The headers of a response say that no request is left of the receiver's rate limit; that holds for the whole endpoint, until 12:11:30 UTC.",
		},
	} {
		c.endpoint.ID, c.endpoint.TenantID = id, "acme"
		e := Endpoint(&webhook.Health{Endpoint: c.endpoint, Observed: c.seen}, now)
		require.True(t, strings.HasPrefix(e.Cause, c.cause), "%s: %s", name, e.Cause)
		require.True(t, strings.HasPrefix(e.Next, c.next), "%s: %s", name, e.Next)
		require.True(t, strings.HasPrefix(e.Remedy, c.remedy) && strings.HasSuffix(e.Remedy, c.remedyEnds), "%s: %s", name, e.Remedy)
		require.NotContains(t, e.Cause, "A response of the receiver asked for it")
		sends := slices.ContainsFunc(e.Actions, func(a Action) bool { return a.Act == SendDeadLettersAgain && a.Body["endpoint_id"] == id.String() })
		require.Equal(t, c.sends, sends, name)
		require.Equal(t, c.sends, strings.Contains(e.Remedy, letters), name)
	}
}

// Where it is not known what waits, nothing is said of it.
func TestConditionSaysNothingOfWhatWaits(t *testing.T) {
	t.Parallel()
	h := &webhook.Health{Endpoint: webhook.Endpoint{ID: webhook.NewEndpointID()}, Known: true}
	h.Observed.Circuit, h.Observed.InFlight, h.Observed.FailureStreak = webhook.CircuitClosed, 2, 3
	e := Condition(h, time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))
	require.Equal(t, "Active, but the last 3 attempts failed; 2 in flight.", e.Summary)
	require.Equal(t, EndpointFails, e.Code)
	require.Contains(t, Endpoint(h, time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)).Summary, "nothing waits")

	h.Observed = webhook.Observation{Circuit: webhook.CircuitClosed}
	require.Equal(t, "Active; no problem was seen lately.", Condition(h, noon()).Summary, "the record was not read: there may be failures")
	require.Equal(t, "Active; no failure on record; nothing waits.", Endpoint(h, noon()).Summary)
}
