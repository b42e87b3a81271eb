package workflows_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// In this file time is skipped: each test is the whole life of a delivery, up to 84
// hours of it, with the real store, real requests and the real activities.

// ran is a delivery that was given up.
type ran struct {
	life     *life
	policy   retry.Policy
	delivery webhook.Delivery
	attempts []webhook.Attempt
}

// exhaust runs a delivery under the policy until it is a dead letter. The receiver
// answers by the script and then always with the last step.
func exhaust(t *testing.T, policy retry.Policy, script ...receivertest.Step) ran {
	t.Helper()
	b := setupPolicy(t, policy)
	return b.exhaust(t, policy, script...)
}

func (b *bundle) exhaust(t *testing.T, policy retry.Policy, script ...receivertest.Step) ran {
	t.Helper()
	b.receiver.Script("/hook", script...)
	b.receiver.Default(script[len(script)-1])
	r := b.givenUp(t, policy)
	require.Equal(t, len(r.attempts), b.receiver.Count(), "each request is an attempt, each attempt was one request")
	for i := range r.attempts {
		require.Equal(t, strconv.Itoa(i+1), b.receiver.Requests()[i].Header.Get("everpost-attempt"))
	}
	return r
}

// givenUp is a delivery to a receiver that never takes it.
func (b *bundle) givenUp(t *testing.T, policy retry.Policy) ran {
	t.Helper()
	l := b.deliver(t)
	l.run()
	d := b.delivery(t, l.start.DeliveryID)
	in := l.deadLettered(d.Reason)
	r := ran{life: l, policy: policy, delivery: d, attempts: b.attempts(t, l.start.DeliveryID)}

	require.Len(t, r.attempts, d.Attempts)
	require.Equal(t, d.Attempts, d.RunAttempts)
	require.Equal(t, d.Attempts, in.RunAttempts)
	require.LessOrEqual(t, d.Attempts, policy.MaxAttempts)
	for i, a := range r.attempts {
		require.Equal(t, i+1, a.Number)
		require.Equal(t, 1, a.Run)
		require.False(t, a.StartedAt.After(l.start.GiveUpAt), "attempt %d", a.Number)
	}
	r.requireVerdicts(t)
	return r
}

// requireVerdicts works out again, from what is recorded of each attempt, what had to
// follow from it: the same delay from the same inputs, to the last end.
func (r ran) requireVerdicts(t *testing.T) {
	t.Helper()
	ambiguous, previous := 0, time.Duration(0)
	for i, a := range r.attempts {
		// Which the store does not keep.
		a.Outcome.Ambiguous = a.Outcome.Decision == retry.Retry && a.Outcome.Status == http.StatusNotFound &&
			!slices.Contains(r.policy.RetryStatuses, http.StatusNotFound)
		ambiguous++
		if !a.Outcome.Ambiguous {
			ambiguous = 0
		}
		ended := a.StartedAt.Add(a.Latency)
		verdict := r.policy.Next(retry.Progress{
			Attempts: a.Number, Ambiguous: ambiguous, Previous: previous, Outcome: a.Outcome, Now: ended, GiveUpAt: r.delivery.GiveUpAt,
			Random: retry.Random(a.Number, r.delivery.DeliveryID.String(), strconv.Itoa(a.Run)),
		})
		if i == len(r.attempts)-1 {
			require.Equal(t, retry.GiveUp, verdict.Action)
			require.Equal(t, string(verdict.Reason), r.delivery.Reason)
			return
		}
		require.Equal(t, retry.Wait, verdict.Action, "attempt %d", a.Number)
		require.Equal(t, string(verdict.Source), a.DelaySource, "attempt %d", a.Number)
		require.InDelta(t, verdict.Delay, a.Delay, float64(time.Millisecond), "attempt %d", a.Number)
		require.GreaterOrEqual(t, r.attempts[i+1].StartedAt.Sub(ended), verdict.Delay-time.Millisecond, "attempt %d", a.Number)
		previous = a.Delay
	}
}

// at is when the attempts started, counted from the first.
func (r ran) at(i int) time.Duration { return r.attempts[i].StartedAt.Sub(r.attempts[0].StartedAt) }

// last is at of the last attempt.
func (r ran) last() time.Duration { return r.at(len(r.attempts) - 1) }

// requireNumber holds the number of the attempts against what the policy's preview
// promises to a receiver that fails every one of them.
func (r ran) requireNumber(t *testing.T, latest func(retry.PreviewAttempt) time.Duration) {
	t.Helper()
	bounds := retry.Preview(r.policy)
	certain := 0 // so many take place whatever is drawn
	for _, bound := range bounds {
		if latest(bound)+slack < r.policy.GiveUpAfter {
			certain++
		}
	}
	require.GreaterOrEqual(t, len(r.attempts), certain)
	require.LessOrEqual(t, len(r.attempts), len(bounds))
}

// requireTimes holds the times of the attempts against the preview, counted from when
// the give-up time began to run: the first attempt is a few milliseconds later, which the
// preview ignores. late is what internal faults may have added before each.
func (r ran) requireTimes(t *testing.T, latest func(retry.PreviewAttempt) time.Duration, late time.Duration) {
	t.Helper()
	r.requireTimesOf(t, retry.Preview(r.policy), latest, late)
}

// requireTimesOf is requireTimes for a preview of another receiver.
func (r ran) requireTimesOf(t *testing.T, bounds []retry.PreviewAttempt, latest func(retry.PreviewAttempt) time.Duration, late time.Duration) {
	t.Helper()
	begin := r.delivery.GiveUpAt.Add(-r.policy.GiveUpAfter)
	for i, a := range r.attempts {
		at := a.StartedAt.Sub(begin)
		require.GreaterOrEqual(t, at, bounds[i].Earliest, "attempt %d", i+1)
		require.LessOrEqual(t, at, latest(bounds[i])+time.Duration(i+1)*late+slack, "attempt %d", i+1)
	}
}

// requireEndedAtOnce: what cannot be tried again is given up when that is known, not
// when its time is over.
func (r ran) requireEndedAtOnce(t *testing.T) {
	t.Helper()
	require.WithinDuration(t, r.attempts[len(r.attempts)-1].StartedAt, r.life.now, slack)
}

func latestPlain(a retry.PreviewAttempt) time.Duration    { return a.Latest }
func latestAfter429(a retry.PreviewAttempt) time.Duration { return a.LatestAfter429 }

// Each preset, against a receiver that always fails, and one that always says 429.
func TestEveryPresetToItsEnd(t *testing.T) {
	t.Parallel()
	for status, latest := range map[int]func(retry.PreviewAttempt) time.Duration{
		http.StatusServiceUnavailable: latestPlain, http.StatusTooManyRequests: latestAfter429,
	} {
		for _, preset := range retry.Presets() {
			t.Run(preset.Name+" "+strconv.Itoa(status), func(t *testing.T) {
				t.Parallel()
				r := exhaust(t, preset.Policy, receivertest.Step{Status: status})
				r.requireNumber(t, latest)
				r.requireTimes(t, latest, 0)
				r.requireEndedAtOnce(t)
				reason := retry.ReasonGiveUpTime
				if len(r.attempts) == preset.Policy.MaxAttempts {
					reason = retry.ReasonMaxAttempts
				}
				require.Equal(t, string(reason), r.delivery.Reason)
				require.Equal(t, retry.HTTPReason(status), r.attempts[len(r.attempts)-1].Outcome.Reason)
			})
		}
	}
}

// Each preset with attempts to spare, so that it is the time that ends it: over the
// full 72 hours, 84 hours or one hour, up to where no further attempt fits. So does the
// jitter that no preset has, in which each delay grows from the one before.
func TestEveryPresetUntilItsGiveUpTime(t *testing.T) {
	t.Parallel()
	decorrelated := retry.Default()
	decorrelated.Jitter = retry.JitterDecorrelated
	for _, preset := range append(retry.Presets(), retry.Preset{Name: "decorrelated", Policy: decorrelated}) {
		t.Run(preset.Name, func(t *testing.T) {
			t.Parallel()
			policy := preset.Policy
			policy.MaxAttempts = retry.MostAttempts
			r := exhaust(t, policy, receivertest.Step{Status: http.StatusServiceUnavailable})
			r.requireNumber(t, latestPlain)
			r.requireTimes(t, latestPlain, 0)
			r.requireEndedAtOnce(t)
			require.Equal(t, string(retry.ReasonGiveUpTime), r.delivery.Reason)
			_, longest := policy.Window(len(r.attempts), retry.LongestDelay)
			require.Greater(t, r.last(), policy.GiveUpAfter-longest-slack, "one more would have fitted")
		})
	}
}

// Each preset, against a receiver whose URL is wrong: over hours by its ambiguous delays,
// unless its attempts or its time end first. standard-webhooks takes a 404 for an outage.
func TestEveryPresetAgainst404(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		attempts int
		reason   retry.Reason
	}{
		"default": {6, retry.ReasonAmbiguousLimit}, "exponential-1h": {6, retry.ReasonAmbiguousLimit},
		"full-jitter": {5, retry.ReasonMaxAttempts}, "steps-90m": {5, retry.ReasonMaxAttempts}, "steps-36h": {6, retry.ReasonAmbiguousLimit},
		"standard-webhooks": {10, retry.ReasonMaxAttempts}, "fast": {3, retry.ReasonGiveUpTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, ok := retry.Lookup(name)
			require.True(t, ok)
			r := exhaust(t, policy, receivertest.Step{Status: http.StatusNotFound})
			require.Len(t, r.attempts, want.attempts)
			require.Equal(t, string(want.reason), r.delivery.Reason)
			r.requireEndedAtOnce(t)
			if name == "standard-webhooks" {
				r.requireTimes(t, latestPlain, 0)
				return
			}
			r.requireTimesOf(t, retry.PreviewAmbiguous(policy), latestPlain, 0)
		})
	}
}

// A 404 under the default: each delay is the list's, to a tenth, and the delivery is given
// up 38 hours after the first attempt, when the sixth 404 is there and not before.
func TestA404FollowsTheAmbiguousDelays(t *testing.T) {
	t.Parallel()
	r := exhaust(t, retry.Default(), receivertest.Step{Status: http.StatusNotFound})
	require.Equal(t, string(retry.ReasonAmbiguousLimit), r.delivery.Reason)
	require.Len(t, r.attempts, 1+len(retry.DefaultAmbiguousDelays()))
	for i, delay := range retry.DefaultAmbiguousDelays() {
		require.InDelta(t, delay, r.attempts[i].Delay, float64(delay)/10, "after attempt %d", i+1)
		require.Equal(t, "ambiguous", r.attempts[i].DelaySource)
		require.Equal(t, delay, r.attempts[i].Nominal)
	}
	const whole = 38*time.Hour + 16*time.Minute
	require.InDelta(t, whole, r.last(), float64(whole)/10)
	require.Empty(t, r.attempts[5].DelaySource)
}

// Without ambiguous delays the first 404 is the last, and the reason is its own.
func TestA404WithoutAmbiguousDelays(t *testing.T) {
	t.Parallel()
	policy := retry.Default()
	policy.AmbiguousDelays = nil
	r := exhaust(t, policy, receivertest.Step{Status: http.StatusNotFound})
	require.Len(t, r.attempts, 1)
	require.Equal(t, "http_404", r.delivery.Reason)
	require.Equal(t, retry.Permanent, r.attempts[0].Outcome.Decision)
}

// Any other outcome starts the list again.
func TestAmbiguousOutcomesAreCountedInARow(t *testing.T) {
	t.Parallel()
	policy := retry.Default()
	policy.AmbiguousDelays = []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}
	wrong, down := receivertest.Step{Status: http.StatusNotFound}, receivertest.Step{Status: http.StatusBadGateway}
	r := exhaust(t, policy, wrong, wrong, wrong, down, wrong, wrong, wrong, wrong)
	require.Len(t, r.attempts, 8)
	require.Equal(t, string(retry.ReasonAmbiguousLimit), r.delivery.Reason)
}

// A 404 now and then neither ends the delivery nor makes any delay shorter than it is
// without: every one is the policy's own or longer, and all attempts are made.
func TestA404InBetweenShortensNothing(t *testing.T) {
	t.Parallel()
	wrong, down := receivertest.Step{Status: http.StatusNotFound}, receivertest.Step{Status: http.StatusServiceUnavailable}
	for name, script := range map[string][]receivertest.Step{
		"one":          {down, wrong, down},
		"every other":  {down, wrong, down, wrong, down, wrong, down, wrong, down, wrong, down, wrong, down},
		"two of three": {wrong, wrong, down, wrong, wrong, down, wrong, wrong, down, wrong, wrong, down},
		"a late one":   {down, down, down, down, down, down, down, down, down, down, wrong, down},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exhaust(t, retry.Default(), script...)
			if len(r.attempts) < r.policy.MaxAttempts {
				require.Equal(t, string(retry.ReasonGiveUpTime), r.delivery.Reason)
				require.Greater(t, r.last(), 60*time.Hour-slack, "one more would have fitted")
			}
			for i, a := range r.attempts[:len(r.attempts)-1] {
				if a.DelaySource == "deadline" {
					continue
				}
				least, most := r.policy.Window(i+1, 0)
				require.GreaterOrEqual(t, a.Delay, least, "after attempt %d", i+1)
				if a.Outcome.Status == http.StatusServiceUnavailable {
					require.LessOrEqual(t, a.Delay, most, "after attempt %d", i+1)
					require.Equal(t, "backoff", a.DelaySource)
				}
			}
		})
	}
}

// What happens to the attempt that the give-up time cuts off, to the second.
func TestTheLastAttemptNearTheDeadline(t *testing.T) {
	t.Parallel()
	const moved = time.Hour - time.Second
	minutes := func(n ...int) (at []time.Duration) {
		for _, minute := range n {
			at = append(at, time.Duration(minute)*time.Minute)
		}
		return at
	}
	for name, c := range map[string]struct {
		base   time.Duration
		status int
		most   int             // attempts
		at     []time.Duration // when they start
		source string          // of the last delay
		reason retry.Reason
	}{
		"moved":                             {35 * time.Minute, 503, 9, append(minutes(0, 35), moved), "deadline", retry.ReasonGiveUpTime},
		"moved, and the last of all":        {35 * time.Minute, 503, 3, append(minutes(0, 35), moved), "deadline", retry.ReasonMaxAttempts},
		"less than half of the delay":       {41 * time.Minute, 503, 9, minutes(0, 41), "backoff", retry.ReasonGiveUpTime},
		"the first retry is too late":       {3 * time.Hour, 503, 9, minutes(0), "", retry.ReasonGiveUpTime},
		"429: moved":                        {19 * time.Minute, 429, 9, append(minutes(0, 38), moved), "deadline", retry.ReasonGiveUpTime},
		"429: less than half of the double": {20 * time.Minute, 429, 9, minutes(0, 40), "backoff", retry.ReasonGiveUpTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := exhaust(t, retry.Policy{
				Strategy: retry.StrategyFixed, Base: c.base, MaxAttempts: c.most, GiveUpAfter: time.Hour,
			}, receivertest.Step{Status: c.status})
			require.Equal(t, string(c.reason), r.delivery.Reason)
			require.Len(t, r.attempts, len(c.at))
			for i, at := range c.at {
				require.InDelta(t, at, r.at(i), float64(slack), "attempt %d", i+1)
			}
			if len(c.at) > 1 {
				require.Equal(t, c.source, r.attempts[len(c.at)-2].DelaySource)
			}
			if c.source == "deadline" {
				require.WithinRange(t, r.attempts[len(c.at)-1].StartedAt, r.life.start.GiveUpAt.Add(-time.Second), r.life.start.GiveUpAt)
			}
			r.requireEndedAtOnce(t)
		})
	}
}

// Retry-After is observed up to max_retry_after. If it ends after the give-up time, one last attempt is made shortly before that.
func TestRetryAfterAroundTheGiveUpTime(t *testing.T) {
	t.Parallel()
	busy := receivertest.Step{Status: http.StatusServiceUnavailable}
	wait := func(status int, after string) receivertest.Step {
		return receivertest.Step{Status: status, Header: map[string]string{"Retry-After": after}}
	}
	const minute, late = time.Minute, 55 * time.Minute // the last attempt starts within five minutes before the give-up time
	for name, c := range map[string]struct {
		script  []receivertest.Step
		asked   int             // number of the first attempt with Retry-After
		at      []time.Duration // from that attempt: when the following ones start; late: the last attempt of the run
		sources []string        // of these delays
		reason  retry.Reason    // "" if it is delivered
	}{
		"past it": {[]receivertest.Step{busy, busy, wait(503, "3600")}, 3, []time.Duration{late}, []string{"deadline"}, ""},
		"past it, as a date in 2099": {
			[]receivertest.Step{busy, wait(429, "Fri, 27 Nov 2099 10:00:00 GMT")}, 2, []time.Duration{late}, []string{"deadline"}, "",
		},
		"milliseconds, twice": {
			[]receivertest.Step{wait(503, "60000"), wait(503, "60000")}, 1, []time.Duration{late}, []string{"deadline"}, retry.ReasonRetryAfterPastGiveUp,
		},
		"past it by the last but one": {[]receivertest.Step{busy, busy, busy, wait(500, "86400")}, 4, []time.Duration{late}, []string{"deadline"}, ""},
		"more than counts": {
			[]receivertest.Step{wait(503, "1800"), wait(503, "600")}, 1, []time.Duration{20 * minute, 30 * minute}, []string{"retry_after", "retry_after"}, "",
		},
		"twice in time": {
			[]receivertest.Step{wait(429, "1200"), wait(429, "1200"), {Status: 400}}, 1, []time.Duration{20 * minute, 40 * minute},
			[]string{"retry_after", "retry_after"}, "http_400",
		},
		"max_attempts is reached first": {[]receivertest.Step{busy, busy, busy, busy, wait(503, "86400")}, 5, nil, nil, retry.ReasonMaxAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, ok := retry.Lookup("fast") // five attempts within an hour
			require.True(t, ok)
			if name == "more than counts" {
				policy.MaxRetryAfter = 20 * minute
			}
			b := setupPolicy(t, policy)
			b.receiver.Script("/hook", c.script...)
			b.receiver.Default(receivertest.Step{Status: 200})
			l := b.deliver(t)
			l.run()
			if c.reason == "" {
				l.ends(webhook.StateDelivered, "")
			} else {
				l.deadLettered(string(c.reason))
			}
			r := ran{life: l, policy: policy, delivery: b.delivery(t, l.start.DeliveryID), attempts: b.attempts(t, l.start.DeliveryID)}
			require.Len(t, r.attempts, c.asked+len(c.at))
			require.Equal(t, len(r.attempts), b.receiver.Count())
			for i, at := range c.at {
				started := r.attempts[c.asked+i].StartedAt
				if at == late {
					require.WithinRange(t, started, l.start.GiveUpAt.Add(late-time.Hour), l.start.GiveUpAt)
				} else {
					waited := r.at(c.asked+i) - r.at(c.asked-1)
					require.GreaterOrEqual(t, waited, at, "too soon")
					require.LessOrEqual(t, waited, at+2*slack)
				}
				require.Equal(t, c.sources[i], r.attempts[c.asked+i-1].DelaySource)
			}
		})
	}
}

// stumble makes the store fail around every attempt: so many claims before it, and so
// many writes of its outcome after it.
func (b *bundle) stumble(claims, writes int) {
	var mu sync.Mutex
	claimed, written := map[int]int{}, map[int]int{}
	onBegin := func(c webhook.Claim) error {
		mu.Lock()
		defer mu.Unlock()
		claimed[c.Attempts]++
		if claimed[c.Attempts] <= claims {
			return errAway
		}
		return nil
	}
	onRecord := func(s webhook.Step) error {
		mu.Lock()
		defer mu.Unlock()
		if s.Attempt == nil {
			return nil
		}
		written[s.Attempt.Number]++
		if written[s.Attempt.Number] <= writes {
			return errAway
		}
		return nil
	}
	b.record.onBegin.Store(&onBegin)
	b.record.onRecord.Store(&onRecord)
}

// Internal faults are no attempts: the budget, the numbers, the delays and the reason
// are those of the receiver alone, however often the store was away in between.
func TestOwnFaultsNeverCountAsAttempts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fast", "steps-90m", "standard-webhooks"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, ok := retry.Lookup(name)
			require.True(t, ok)
			b := setupPolicy(t, policy)
			b.stumble(3, 2)
			r := b.exhaust(t, policy, receivertest.Step{Status: http.StatusServiceUnavailable})
			require.Equal(t, string(retry.ReasonMaxAttempts), r.delivery.Reason)
			require.Len(t, r.attempts, policy.MaxAttempts)
			require.Empty(t, r.delivery.LastError)

			// Later than without them by what they were waited for, 1 s doubling, and no more.
			r.requireTimes(t, latestPlain, (1+2+4+8+16)*time.Second)
		})
	}
}

// A store that stays unavailable after two attempts: the delivery ends at its give-up
// time with the reason internal, after two attempts.
func TestOwnFaultsAfterAttemptsUntilTheGiveUpTime(t *testing.T) {
	t.Parallel()
	b := setup(t, "fast")
	b.receiver.Default(receivertest.Step{Status: http.StatusServiceUnavailable})
	refuse := func(c webhook.Claim) error {
		if c.Attempts >= 2 {
			return errAway
		}
		return nil
	}
	b.record.onBegin.Store(&refuse)
	l := b.deliver(t)
	l.run()
	in := l.deadLettered(string(retry.ReasonInternal))
	require.Equal(t, 2, in.Attempts)
	require.Equal(t, 2, b.receiver.Count())
	require.Len(t, b.attempts(t, l.start.DeliveryID), 2)
	require.WithinRange(t, l.now, l.start.GiveUpAt, l.start.GiveUpAt.Add(time.Minute+slack))
	require.Contains(t, b.delivery(t, l.start.DeliveryID).LastError, errAway.Error())
}
