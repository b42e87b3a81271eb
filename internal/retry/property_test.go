package retry_test

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

// anyProgress draws the state of a run, near its limits and its give-up time as often as far
// from them.
func anyProgress(policy retry.Policy) *rapid.Generator[retry.Progress] {
	return rapid.Custom(func(t *rapid.T) retry.Progress {
		outcome := retry.Outcome{
			Decision: retry.Retry, Status: rapid.SampledFrom([]int{0, 404, 429, 500, 503}).Draw(t, "status"),
		}
		outcome.Ambiguous = outcome.Status != 429 && rapid.Bool().Draw(t, "ambiguous")
		progress := retry.Progress{
			Attempts: rapid.IntRange(1, policy.MaxAttempts+1).Draw(t, "attempts"), Now: received(),
			Previous: anyDuration(0, retry.LongestDelay).Draw(t, "previous"),
			Random:   retry.Random(rapid.IntRange(1, 1000).Draw(t, "attempt"), "dlv_"+strconv.Itoa(rapid.Int().Draw(t, "delivery")), "1"),
		}
		if outcome.Ambiguous {
			progress.Ambiguous = rapid.IntRange(1, len(policy.AmbiguousDelays)+2).Draw(t, "ambiguous in a row")
			outcome.Reason = "http_404"
		}
		// The give-up time is anywhere, or near the end of the delay. The requested delay
		// is anything, or near the give-up time.
		_, latest := policy.Window(progress.Attempts, progress.Previous)
		if outcome.Ambiguous {
			latest = max(latest, longestAmbiguous(policy, progress.Ambiguous))
		}
		remaining := anyDuration(0, policy.GiveUpAfter).Draw(t, "remaining")
		if rapid.Bool().Draw(t, "near the end") {
			remaining = time.Duration(float64(rapid.IntRange(0, 250).Draw(t, "percent of the delay")) / 100 * float64(latest))
		}
		switch rapid.SampledFrom([]string{"none", "any", "near the end"}).Draw(t, "Retry-After") {
		case "any":
			outcome.RetryAfter = anyDuration(0, math.MaxInt64).Draw(t, "asked")
		case "near the end":
			outcome.RetryAfter = max(0, remaining+time.Duration(rapid.IntRange(-2000, 1000).Draw(t, "asked ms"))*time.Millisecond)
		}
		progress.GiveUpAt = received().Add(remaining)
		progress.Outcome = outcome

		return progress
	})
}

// bound is the longest delay of a strategy and a jitter, as documented in docs/retries.md: the
// cap, or the step with its proportional share.
func bound(policy retry.Policy, attempt int) time.Duration {
	if policy.Cap > 0 {
		return policy.Cap
	}
	step := policy.Base
	if policy.Strategy == retry.StrategySchedule {
		step = policy.Schedule[min(attempt, len(policy.Schedule))-1]
	}
	if policy.Jitter == retry.JitterProportional {
		step += time.Duration(policy.JitterRatio * float64(step))
	}

	return max(step, policy.MinDelay)
}

// longestAmbiguous is the upper bound of the n-th ambiguous delay, 0 if there is none.
func longestAmbiguous(policy retry.Policy, n int) time.Duration {
	if n > len(policy.AmbiguousDelays) {
		return 0
	}

	return policy.AmbiguousDelays[n-1] * 11 / 10
}

// TestNextKeepsEveryRule: any policy, any receiver, any time.
func TestNextKeepsEveryRule(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		policy := validPolicy().Draw(t, "policy")
		requireRules(t, policy, anyProgress(policy).Draw(t, "progress"))
	})
}

// TestOneLastAttempt: a receiver that asks for a longer pause each time gets one attempt in the last tenth of the run,
// five minutes at most, whatever the policy.
func TestOneLastAttempt(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		policy := validPolicy().Draw(t, "policy")
		policy.MaxAttempts, policy.MaxRetryAfter = retry.MostAttempts, retry.LongestRetryAfter
		giveUpAt := received().Add(policy.GiveUpAfter)
		lead := max(time.Second, min(5*time.Minute, policy.GiveUpAfter/10))
		now, late := received(), 0
		for attempt := 1; ; attempt++ {
			verdict := policy.Next(retry.Progress{
				Attempts: attempt, Now: now, GiveUpAt: giveUpAt, Random: rapid.Float64Range(0, 0.9999).Draw(t, "u"),
				Outcome: retry.Outcome{Decision: retry.Retry, Status: 503, RetryAfter: math.MaxInt64},
			})
			if verdict.Action == retry.GiveUp {
				break
			}
			now = verdict.At
			if giveUpAt.Sub(now) <= lead {
				late++
			}
		}
		require.LessOrEqual(t, late, 1)
		low, _ := policy.Window(1, 0)
		if policy.GiveUpAfter > lead && low <= policy.GiveUpAfter-time.Second && policy.Jitter == retry.JitterNone {
			require.Equal(t, 1, late)
		}
	})
}

// TestNearTheDeadline covers the range around a give-up time in steps of 250 ms: the remaining
// time, and the requested delay, with a backoff of 10 s.
func TestNearTheDeadline(t *testing.T) {
	t.Parallel()

	const step = 250 * time.Millisecond
	policy := tenSeconds()
	seen := map[retry.DelaySource]int{}
	for remaining := -time.Second; remaining <= 25*time.Second; remaining += step {
		for asked := time.Duration(0); asked <= 25*time.Second; asked += step {
			for _, status := range []int{503, 429} {
				verdict := requireRules(t, policy, retry.Progress{
					Attempts: 1, Now: received(), GiveUpAt: received().Add(remaining),
					Outcome: retry.Outcome{Decision: retry.Retry, Status: status, RetryAfter: asked},
				})
				seen[verdict.Source]++
			}
		}
	}
	require.Len(t, seen, 4, "given up, and each source of a delay")
}

// requireRules checks a verdict against each documented rule separately: the bounds of the
// delay, and when a delivery is given up. It returns the verdict.
func requireRules(t require.TestingT, policy retry.Policy, progress retry.Progress) retry.Verdict {
	verdict := policy.Next(progress)
	outcome, remaining := progress.Outcome, progress.GiveUpAt.Sub(progress.Now)

	backoff, most := policy.Delay(progress.Attempts, progress.Previous, progress.Random), bound(policy, progress.Attempts)
	if outcome.Status == 429 && min(outcome.RetryAfter, policy.MaxRetryAfter) == 0 {
		backoff, most = 2*backoff, 2*most
	}
	usedUp := outcome.Ambiguous && progress.Ambiguous > len(policy.AmbiguousDelays)
	plain := backoff
	if outcome.Ambiguous && !usedUp {
		entry := policy.AmbiguousDelays[progress.Ambiguous-1]
		low := entry - entry/10 // entry × U[0.9, 1.1], in whole nanoseconds as in Next
		drawn := low + min(time.Duration(progress.Random*float64(2*(entry/10))), max(2*(entry/10)-1, 0))
		backoff, most = max(backoff, drawn), max(most, longestAmbiguous(policy, progress.Ambiguous))
		require.InDelta(t, float64(entry)*(0.9+0.2*progress.Random), float64(drawn), 8192, "differs by more than rounding")
	}
	requested := min(outcome.RetryAfter, policy.MaxRetryAfter)
	// The last attempt before the give-up time, one second before it if the backoff is too long, else earlier.
	last := remaining - time.Second
	mayMove := last >= 0 && 2*last >= backoff
	lead := max(time.Second, min(5*time.Minute, policy.GiveUpAfter/10))
	asksPast := requested > max(remaining, 0) && remaining <= lead

	if verdict.Action == retry.Wait {
		require.GreaterOrEqual(t, verdict.Delay, time.Duration(0), "negative")
		require.LessOrEqual(t, verdict.Delay, max(most, requested), "above its bound")
		require.LessOrEqual(t, verdict.Delay, remaining, "past the give-up time")
		require.Equal(t, progress.Now.Add(verdict.Delay), verdict.At)
		require.Less(t, progress.Attempts, policy.MaxAttempts)
		require.False(t, usedUp)
		if verdict.Source != retry.SourceDeadline {
			require.GreaterOrEqual(t, verdict.Delay, requested, "below Retry-After")
		}
	}
	switch {
	case verdict.Source == retry.SourceBackoff:
		require.Equal(t, plain, verdict.Delay)
		require.Equal(t, plain, backoff, "an ambiguous outcome needs a longer delay")
	case verdict.Source == retry.SourceAmbiguous:
		require.True(t, outcome.Ambiguous)
		require.Equal(t, backoff, verdict.Delay)
		require.Greater(t, verdict.Delay, plain)
	case verdict.Source == retry.SourceRetryAfter:
		require.Equal(t, requested, verdict.Delay)
		require.True(t, verdict.Delay > backoff || backoff > remaining && verdict.Delay > last && mayMove)
	case verdict.Source == retry.SourceDeadline && backoff > remaining:
		require.Equal(t, last, verdict.Delay)
		require.True(t, mayMove)
		require.False(t, asksPast)
	case verdict.Source == retry.SourceDeadline:
		require.Greater(t, requested, remaining, "moved unnecessarily")
		require.GreaterOrEqual(t, verdict.Delay, backoff)
		require.Greater(t, remaining, lead, "a last attempt after a last attempt")
		if verdict.Delay > backoff {
			require.GreaterOrEqual(t, remaining-verdict.Delay, time.Second)
		}
		require.LessOrEqual(t, remaining-verdict.Delay, lead)
	case verdict.Reason == retry.ReasonAmbiguousLimit:
		require.True(t, usedUp)
	case verdict.Reason == outcome.Reason && outcome.Reason != "":
		require.True(t, outcome.Ambiguous)
		require.Empty(t, policy.AmbiguousDelays, "ambiguous delays remain")
	case verdict.Reason == retry.ReasonMaxAttempts:
		require.GreaterOrEqual(t, progress.Attempts, policy.MaxAttempts)
	case verdict.Reason == retry.ReasonRetryAfterPastGiveUp:
		require.True(t, asksPast, "a last attempt was still possible")
	case verdict.Reason == retry.ReasonGiveUpTime:
		require.Greater(t, backoff, remaining, "the attempt would have been in time")
		require.False(t, mayMove, "the attempt could have been moved")
		require.False(t, asksPast)
	default:
		require.Fail(t, "neither a delay with its source nor an end with its reason", "%+v", verdict)
	}

	return verdict
}

// TestSameInputsSameDelay: a verdict is a function of its inputs, also for a policy that was
// stored as JSON and read back.
func TestSameInputsSameDelay(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		policy := validPolicy().Draw(t, "policy")
		progress := anyProgress(policy).Draw(t, "progress")
		text, err := json.Marshal(policy)
		require.NoError(t, err)
		stored, err := retry.ParsePolicy(text)
		require.NoError(t, err)
		first, again := policy.Next(progress), policy.Next(progress)
		require.Equal(t, first, again)
		require.Equal(t, first, stored.Next(progress))
		require.Equal(t, retry.Preview(policy), retry.Preview(stored))
	})
}

// TestFarAttemptsAreTheCap: the delay of attempt 10,000 with factor 10 is the cap, not a
// negative number, for every growing strategy and every jitter.
func TestFarAttemptsAreTheCap(t *testing.T) {
	t.Parallel()

	for _, strategy := range []retry.Strategy{retry.StrategyLinear, retry.StrategyExponential} {
		for _, jitter := range []retry.Jitter{
			retry.JitterNone, retry.JitterFull, retry.JitterEqual, retry.JitterDecorrelated, retry.JitterProportional,
		} {
			for _, limit := range []time.Duration{12 * time.Hour, retry.LongestDelay} {
				policy := retry.Policy{
					Strategy: strategy, Base: 10 * time.Minute, Factor: 10, Cap: limit, Jitter: jitter, JitterRatio: 0.2,
					MaxAttempts: retry.MostAttempts, GiveUpAfter: retry.LongestGiveUp,
				}
				for _, attempt := range []int{10_000, 10_001, math.MaxInt32, math.MaxInt} {
					require.Equal(t, limit, policy.Nominal(attempt), "%s %s, attempt %d", strategy, jitter, attempt)
					low, high := policy.Window(attempt, limit)
					require.Equal(t, limit, high, "%s %s, attempt %d", strategy, jitter, attempt)
					require.GreaterOrEqual(t, low, time.Duration(0))
					for _, u := range []float64{0, 0.5, 1 - 1.0/(1<<53)} {
						delay := policy.Delay(attempt, limit, u)
						require.LessOrEqual(t, low, delay)
						require.LessOrEqual(t, delay, limit)
					}
				}
			}
		}
	}
}

// receiverByte is a receiver's behaviour for one byte of a fuzzed script: its latency and its
// answer.
func receiverByte(b byte) (latency time.Duration, outcome retry.Outcome) {
	latency = time.Duration(b>>5) * 4 * time.Second // 0 to 28 s, close to the longest request
	outcome = retry.Outcome{Decision: retry.Retry, Status: 503}
	switch b & 7 {
	case 0, 1:
	case 2:
		outcome.Status = 429
	case 3:
		outcome.Status, outcome.Ambiguous = 404, true
	case 4:
		outcome.RetryAfter = time.Duration(b>>3) * time.Second
	case 5:
		outcome.RetryAfter = time.Duration(b>>3) * time.Hour
	case 6:
		outcome.Status, outcome.RetryAfter = 429, time.Duration(b>>3)*time.Minute
	default:
		outcome.RetryAfter = math.MaxInt64
	}

	return latency, outcome
}

// FuzzRun simulates a run of any policy with any receiver, including slow ones, with the jitter
// of real attempts. No attempt starts past the give-up time, and the run ends within
// MaxAttempts.
func FuzzRun(f *testing.F) {
	for _, preset := range retry.Presets() {
		text, err := json.Marshal(preset.Name)
		require.NoError(f, err)
		f.Add(text, []byte{0}, "dlv_06gzfmmqbxxnk537qnw6yr8vqr")
		f.Add(text, []byte{2, 0xe2, 3, 0x23, 12, 0}, "dlv_06gzfmmqbxxnk537qnw6yr8vqs")
	}
	f.Add([]byte(`{"strategy":"fixed","base":"35m","jitter":"none","give_up_after":"1h"}`), []byte{0x20}, "dlv_1")
	f.Add([]byte(`{"strategy":"linear","base":"10s","jitter":"decorrelated","give_up_after":"90s","max_attempts":1000}`), []byte{0, 2, 20}, "dlv_2")

	f.Fuzz(func(t *testing.T, text, script []byte, id string) {
		policy, err := retry.ParsePolicy(text)
		if err != nil || len(script) == 0 {
			return
		}
		now, waited, ambiguous, previous := received(), time.Duration(0), 0, time.Duration(0)
		giveUpAt := now.Add(policy.GiveUpAfter)
		for attempt := 1; ; attempt++ {
			require.LessOrEqual(t, attempt, policy.MaxAttempts)
			require.False(t, now.After(giveUpAt), "attempt %d", attempt)
			latency, outcome := receiverByte(script[(attempt-1)%len(script)])
			now, waited = now.Add(latency), waited+latency
			ambiguous++
			if !outcome.Ambiguous {
				ambiguous = 0
			}
			verdict := policy.Next(retry.Progress{
				Attempts: attempt, Ambiguous: ambiguous, Previous: previous, Outcome: outcome, Now: now, GiveUpAt: giveUpAt,
				Random: random(id, 1, attempt),
			})
			if verdict.Action == retry.GiveUp {
				return
			}
			require.Equal(t, retry.Wait, verdict.Action)
			now, waited, previous = verdict.At, waited+verdict.Delay, verdict.Delay
			require.LessOrEqual(t, waited, policy.GiveUpAfter, "the sum over attempts, after attempt %d", attempt)
		}
	})
}
