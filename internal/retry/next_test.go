package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

// tenSeconds has a constant delay of 10 s, so that expected times are easy to compute.
func tenSeconds() retry.Policy {
	return retry.Policy{
		Strategy: retry.StrategyFixed, Base: 10 * time.Second,
		MaxAttempts: 5, GiveUpAfter: time.Hour, MaxRetryAfter: 12 * time.Hour,
		AmbiguousDelays: []time.Duration{5 * time.Second, 20 * time.Second, time.Minute},
	}
}

func TestNext(t *testing.T) {
	t.Parallel()

	const (
		s, m   = time.Second, time.Minute
		middle = (s + 5*m) / 2 // of the lead of a last attempt, for the random number 0.5
	)
	type want struct {
		action retry.Action
		delay  time.Duration
		source retry.DelaySource
		reason retry.Reason
	}
	wait := func(delay time.Duration, source retry.DelaySource) want {
		return want{retry.Wait, delay, source, ""}
	}
	giveUp := func(reason retry.Reason) want { return want{retry.GiveUp, 0, "", reason} }
	again := func(status int, after time.Duration) retry.Outcome {
		return retry.Outcome{Decision: retry.Retry, Status: status, Reason: retry.HTTPReason(status), RetryAfter: after}
	}
	ambiguous := retry.Outcome{Decision: retry.Retry, Status: 404, Reason: "http_404", Ambiguous: true}
	asking := func(outcome retry.Outcome, after time.Duration) retry.Outcome {
		outcome.RetryAfter = after
		return outcome
	}

	table := []struct {
		name                string
		attempts, ambiguous int
		outcome             retry.Outcome
		remaining           time.Duration // until the give-up time
		want                want
	}{
		{"delivered", 1, 0, retry.Outcome{Decision: retry.Delivered}, time.Hour, want{action: retry.Deliver}},
		{"delivered by the last attempt, too late", 5, 0, retry.Outcome{Decision: retry.Delivered}, -s, want{action: retry.Deliver}},
		{"permanent", 1, 0, retry.Outcome{Decision: retry.Permanent, Reason: "http_400"}, time.Hour, giveUp("http_400")},
		{"undecided", 1, 0, retry.Outcome{}, time.Hour, wait(10*s, retry.SourceBackoff)},

		{"backoff", 1, 0, again(503, 0), time.Hour, wait(10*s, retry.SourceBackoff)},
		{"shorter Retry-After", 1, 0, again(503, 3*s), time.Hour, wait(10*s, retry.SourceBackoff)},
		{"equal Retry-After", 1, 0, again(503, 10*s), time.Hour, wait(10*s, retry.SourceBackoff)},
		{"longer Retry-After", 1, 0, again(503, 30*s), time.Hour, wait(30*s, retry.SourceRetryAfter)},
		{"429", 1, 0, again(429, 0), time.Hour, wait(20*s, retry.SourceBackoff)},
		{"429 with Retry-After", 1, 0, again(429, s), time.Hour, wait(10*s, retry.SourceBackoff)},

		{"last but one", 4, 0, again(503, 0), time.Hour, wait(10*s, retry.SourceBackoff)},
		{"max attempts", 5, 0, again(503, 0), time.Hour, giveUp("max_attempts")},
		{"above max attempts", 6, 0, again(503, 0), time.Hour, giveUp("max_attempts")},
		{"ambiguous, the backoff is longer", 1, 1, ambiguous, time.Hour, wait(10*s, retry.SourceBackoff)},
		{"ambiguous, its own delay is longer", 2, 2, ambiguous, time.Hour, wait(20*s, retry.SourceAmbiguous)},
		{"ambiguous, the last delay", 3, 3, ambiguous, time.Hour, wait(60*s, retry.SourceAmbiguous)},
		{"ambiguous again after another outcome", 4, 1, ambiguous, time.Hour, wait(10*s, retry.SourceBackoff)},
		{"ambiguous delays used up", 4, 4, ambiguous, time.Hour, giveUp("ambiguous_limit")},
		{"ambiguous delays and max attempts used up", 5, 4, ambiguous, time.Hour, giveUp("ambiguous_limit")},
		{"max attempts, ambiguous delays left", 5, 3, ambiguous, time.Hour, giveUp("max_attempts")},
		{"ambiguous, just in time", 2, 2, ambiguous, 20 * s, wait(20*s, retry.SourceAmbiguous)},
		{"ambiguous, moved", 2, 2, ambiguous, 20*s - 1, wait(19*s-1, retry.SourceDeadline)},
		{"ambiguous, less than half", 2, 2, ambiguous, 11*s - 1, giveUp("give_up_time")},
		{"ambiguous, longer Retry-After", 2, 2, asking(ambiguous, 30*s), time.Hour, wait(30*s, retry.SourceRetryAfter)},
		{"ambiguous, shorter Retry-After", 2, 2, asking(ambiguous, 12*s), time.Hour, wait(20*s, retry.SourceAmbiguous)},
		{"no longer ambiguous", 4, 3, again(503, 0), time.Hour, wait(10*s, retry.SourceBackoff)},

		{"just in time", 1, 0, again(503, 0), 10 * s, wait(10*s, retry.SourceBackoff)},
		{"moved", 1, 0, again(503, 0), 10*s - 1, wait(9*s-1, retry.SourceDeadline)},
		{"moved with exactly half", 1, 0, again(503, 0), 6 * s, wait(5*s, retry.SourceDeadline)},
		{"less than half", 1, 0, again(503, 0), 6*s - 1, giveUp("give_up_time")},
		{"no time at all", 1, 0, again(503, 0), 0, giveUp("give_up_time")},
		{"too late", 1, 0, again(503, 0), -time.Hour, giveUp("give_up_time")},
		{"429 moved: half of the doubled delay", 1, 0, again(429, 0), 11 * s, wait(10*s, retry.SourceDeadline)},
		{"429 less than half", 1, 0, again(429, 0), 11*s - 1, giveUp("give_up_time")},
		{"moved, the Retry-After is shorter", 1, 0, again(503, 7*s), 8 * s, wait(7*s, retry.SourceDeadline)},
		{"moved, the Retry-After is just in time", 1, 0, again(503, 7*s), 8*s - 1, wait(7*s, retry.SourceRetryAfter)},
		{"moved if it were not for a Retry-After past it", 1, 0, again(503, time.Minute), 8 * s, giveUp("retry_after_past_give_up")},
		{"too late for the backoff, in time for the Retry-After", 1, 0, again(503, 3*s), 5 * s, giveUp("give_up_time")},
		{"Retry-After at the give-up time", 1, 0, again(503, 30*s), 30 * s, wait(30*s, retry.SourceRetryAfter)},
		{"Retry-After past the give-up time", 1, 0, again(503, 59*m), 40 * m, wait(40*m-middle, retry.SourceDeadline)},
		{"Retry-After a moment past it", 1, 0, again(503, 40*m+1), 40 * m, wait(40*m-middle, retry.SourceDeadline)},
		{"Retry-After past it, the backoff ends later than the lead begins", 1, 0, again(503, time.Hour), 5*m + s, wait(5*m+s-middle, retry.SourceDeadline)},
		{"Retry-After past it, after the last attempt", 1, 0, again(503, time.Hour), 5 * m, giveUp("retry_after_past_give_up")},
		{"Retry-After past it, the very end", 1, 0, again(503, time.Hour), 10 * s, giveUp("retry_after_past_give_up")},
		{"both past it", 1, 0, again(503, 3*s), 2 * s, giveUp("retry_after_past_give_up")},
		{"no time at all, and a Retry-After", 1, 0, again(503, s), 0, giveUp("retry_after_past_give_up")},
		{"Retry-After of a week", 1, 0, again(503, 7*24*time.Hour), 20 * time.Hour, wait(12*time.Hour, retry.SourceRetryAfter)},
		{"Retry-After saturated", 1, 0, again(429, math.MaxInt64), time.Hour, wait(time.Hour-middle, retry.SourceDeadline)},
		{"negative Retry-After", 1, 0, again(503, -s), time.Hour, wait(10*s, retry.SourceBackoff)},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := tenSeconds().Next(retry.Progress{
				Attempts: row.attempts, Ambiguous: row.ambiguous, Outcome: row.outcome,
				Now: received(), GiveUpAt: received().Add(row.remaining), Random: 0.5,
			})
			require.Equal(t, row.want, want{got.Action, got.Delay, got.Source, got.Reason})
			if got.Action == retry.Wait {
				require.Equal(t, received().Add(got.Delay), got.At)
				nominal := 10 * s
				if row.outcome.Ambiguous {
					nominal = max(nominal, tenSeconds().AmbiguousDelays[row.ambiguous-1])
				}
				require.Equal(t, nominal, got.Nominal)
			} else {
				require.Zero(t, got.At)
			}
		})
	}
}

func TestNextWithoutGiveUpTime(t *testing.T) {
	t.Parallel()

	policy := tenSeconds()
	policy.MaxRetryAfter = retry.LongestRetryAfter
	progress := retry.Progress{
		Attempts: 1, Now: received(),
		Outcome: retry.Outcome{Decision: retry.Retry, Status: 503, RetryAfter: math.MaxInt64},
	}
	require.Equal(t, retry.LongestGiveUp, policy.Next(progress).Delay)
	progress.GiveUpAt = progress.Now.Add(retry.LongestGiveUp)
	require.Equal(t, retry.SourceRetryAfter, policy.Next(progress).Source)
}

func TestNextFarFromNow(t *testing.T) {
	t.Parallel()

	progress := retry.Progress{
		Attempts: 1, Now: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), GiveUpAt: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
		Outcome: retry.Outcome{Decision: retry.Retry, Status: 503},
	}
	require.Equal(t, retry.ReasonGiveUpTime, tenSeconds().Next(progress).Reason)
	progress.Now, progress.GiveUpAt = progress.GiveUpAt, progress.Now
	require.Equal(t, 10*time.Second, tenSeconds().Next(progress).Delay)
}

// TestAmbiguousDelays: the n-th delay of the list has a jitter of ±10 % and is a minimum: it
// never shortens the policy's own delay.
func TestAmbiguousDelays(t *testing.T) {
	t.Parallel()

	const below1 = 1 - 1.0/(1<<53)
	ambiguous := retry.Outcome{Decision: retry.Retry, Status: 404, Reason: "http_404", Ambiguous: true}
	for _, preset := range retry.Presets() {
		policy := preset.Policy
		policy.GiveUpAfter = retry.LongestGiveUp
		for attempt := 1; attempt < policy.MaxAttempts; attempt++ {
			for n := 1; n <= len(policy.AmbiguousDelays)+1; n++ {
				for _, u := range []float64{0, 0.25, 0.5, 0.75, below1} {
					progress := retry.Progress{
						Attempts: attempt, Ambiguous: n, Outcome: ambiguous, Now: received(), Random: u,
						GiveUpAt: received().Add(policy.GiveUpAfter),
					}
					got := policy.Next(progress)
					if n > len(policy.AmbiguousDelays) {
						require.Equal(t, retry.Verdict{Action: retry.GiveUp, Reason: retry.ReasonAmbiguousLimit}, got)
						continue
					}
					entry, plain := policy.AmbiguousDelays[n-1], policy.Delay(attempt, 0, u)
					want := float64(entry) * (0.9 + 0.2*u)
					require.Equal(t, retry.Wait, got.Action)
					if plain >= got.Delay {
						require.Equal(t, plain, got.Delay)
						require.Equal(t, retry.SourceBackoff, got.Source)
						require.Less(t, want, float64(plain)+2)
					} else {
						require.InDelta(t, want, got.Delay, 2, "%s, attempt %d, ambiguous %d, u %v", preset.Name, attempt, n, u)
						require.Equal(t, retry.SourceAmbiguous, got.Source)
					}
					require.Equal(t, max(entry, policy.Nominal(attempt)), got.Nominal)
				}
			}
		}
	}
}

// TestAmbiguousWithoutDelays: Classify makes such an outcome permanent. One that was classified
// under another policy still ends the delivery with its own reason.
func TestAmbiguousWithoutDelays(t *testing.T) {
	t.Parallel()

	policy := tenSeconds()
	policy.AmbiguousDelays = nil
	require.Equal(t, retry.Verdict{Action: retry.GiveUp, Reason: "http_404"}, policy.Next(retry.Progress{
		Attempts: 1, Ambiguous: 1, Now: received(), GiveUpAt: received().Add(time.Hour),
		Outcome: retry.Outcome{Decision: retry.Retry, Status: 404, Reason: "http_404", Ambiguous: true},
	}))
}

func TestZeroPolicyIsDefault(t *testing.T) {
	t.Parallel()

	progress := retry.Progress{
		Attempts: 3, Now: received(), GiveUpAt: received().Add(time.Hour), Random: 0.3,
		Outcome: retry.Outcome{Decision: retry.Retry, Status: 503},
	}
	require.Equal(t, retry.Default().Next(progress), retry.Policy{}.Next(progress))
	require.Equal(t, retry.Preview(retry.Default()), retry.Preview(retry.Policy{}))
	require.NoError(t, retry.Policy{}.Validate())
}

// TestWholeRuns simulates complete runs of any policy with any receiver, and compares every
// attempt with the preview.
func TestWholeRuns(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		policy := validPolicy().Draw(t, "policy")
		policy.MaxAttempts = min(policy.MaxAttempts, 30)
		preview, ambiguousPreview := retry.Preview(policy), retry.PreviewAmbiguous(policy)
		begin, giveUpAt := received(), received().Add(policy.GiveUpAfter)

		kind := rapid.SampledFrom([]string{"plain", "429", "ambiguous", "busy", "any"}).Draw(t, "receiver")
		draw := func() retry.Outcome {
			outcome := retry.Outcome{Decision: retry.Retry, Status: 503}
			if kind == "429" || kind == "any" && rapid.Bool().Draw(t, "429") {
				outcome.Status = 429
			}
			if kind == "ambiguous" {
				outcome.Status, outcome.Ambiguous = 404, true
			}
			if kind == "busy" {
				outcome.RetryAfter = policy.MaxRetryAfter + anyDuration(0, time.Hour).Draw(t, "retry after")
			}
			if kind == "any" {
				outcome.Ambiguous = rapid.Bool().Draw(t, "ambiguous")
				outcome.RetryAfter = anyDuration(0, retry.LongestDelay).Draw(t, "retry after")
			}

			return outcome
		}

		now, ambiguous, previous := begin, 0, time.Duration(0)
		for attempt := 1; ; attempt++ {
			require.LessOrEqual(t, attempt, policy.MaxAttempts)
			require.False(t, now.After(giveUpAt), "attempt %d starts past the give-up time", attempt)
			since := now.Sub(begin)
			if kind == "ambiguous" {
				require.LessOrEqual(t, attempt, max(len(ambiguousPreview), 1), "an attempt that is not in the preview")
				require.LessOrEqual(t, ambiguousPreview[attempt-1].Earliest, since, "attempt %d", attempt)
				require.LessOrEqual(t, since, ambiguousPreview[attempt-1].Latest, "attempt %d", attempt)
			}
			if kind == "plain" || kind == "429" {
				require.LessOrEqual(t, attempt, len(preview), "an attempt that is not in the preview")
				require.LessOrEqual(t, preview[attempt-1].Earliest, since, "attempt %d", attempt)
				require.LessOrEqual(t, since, preview[attempt-1].LatestAfter429, "attempt %d", attempt)
			}
			if kind == "plain" {
				require.LessOrEqual(t, since, preview[attempt-1].Latest, "attempt %d", attempt)
			}
			if kind == "busy" {
				require.LessOrEqual(t, attempt, len(preview), "an attempt that is not in the preview")
				require.LessOrEqual(t, since, preview[attempt-1].LatestAfterRetryAfter, "attempt %d", attempt)
			}

			outcome := draw()
			if outcome.Ambiguous {
				ambiguous++
			} else {
				ambiguous = 0
			}
			verdict := policy.Next(retry.Progress{
				Attempts: attempt, Ambiguous: ambiguous, Previous: previous, Outcome: outcome,
				Now: now, GiveUpAt: giveUpAt, Random: rapid.Float64Range(0, 0.9999).Draw(t, "u"),
			})
			if verdict.Action == retry.GiveUp {
				if !outcome.Ambiguous || len(policy.AmbiguousDelays) > 0 { // else the reason is the outcome's, which is empty here
					require.NotEmpty(t, verdict.Reason)
				}
				return
			}
			require.Equal(t, retry.Wait, verdict.Action)
			requested := min(outcome.RetryAfter, policy.MaxRetryAfter)
			if verdict.Source != retry.SourceDeadline {
				require.GreaterOrEqual(t, verdict.Delay, requested)
			}
			_, latest := policy.Window(attempt, previous)
			if outcome.Status == 429 {
				latest *= 2
			}
			if outcome.Ambiguous {
				latest = max(latest, longestAmbiguous(policy, ambiguous))
			}
			require.LessOrEqual(t, verdict.Delay, max(latest, requested))
			now, previous = verdict.At, verdict.Delay
		}
	})
}

func TestPreview(t *testing.T) {
	t.Parallel()

	const s, h = time.Second, time.Hour
	plain := tenSeconds()
	require.Equal(t, []retry.PreviewAttempt{
		{Number: 1, Expected: true},
		{2, 10 * s, 10 * s, 10 * s, 20 * s, h, true},
		{3, 20 * s, 20 * s, 20 * s, 40 * s, h, true},
		{4, 30 * s, 30 * s, 30 * s, 60 * s, h, true},
		{5, 40 * s, 40 * s, 40 * s, 80 * s, h, true},
	}, retry.Preview(plain))

	// The last attempt is moved forward; the one after it never takes place.
	plain.GiveUpAfter, plain.MaxRetryAfter = 27*s, 12*s
	require.Equal(t, []retry.PreviewAttempt{
		{Number: 1, Expected: true},
		{2, 10 * s, 10 * s, 10 * s, 20 * s, 12 * s, true},
		{3, 20 * s, 20 * s, 20 * s, 27 * s, 24 * s, true},
		{4, 26 * s, 26 * s, 27 * s, 27 * s, 27 * s, true},
	}, retry.Preview(plain))

	// A delay of up to 9 s is moved forward to 4.5 s, earlier than the shortest delay of 5 s.
	early := tenSeconds()
	early.Jitter, early.GiveUpAfter = retry.JitterEqual, 5500*time.Millisecond
	require.Equal(t, 4500*time.Millisecond, retry.Preview(early)[1].Earliest)

	// The next decorrelated delay grows from a doubled delay.
	decorrelated := tenSeconds()
	decorrelated.Jitter, decorrelated.Cap, decorrelated.MaxAttempts, decorrelated.MaxRetryAfter = retry.JitterDecorrelated, 1000*s, 4, 40*s
	require.Equal(t, []retry.PreviewAttempt{
		{Number: 1, Expected: true},
		{2, 10 * s, 20 * s, 30 * s, 60 * s, 40 * s, true},
		{3, 20 * s, 55 * s, 120 * s, 420 * s, 160 * s, true},
		{4, 30 * s, 112500 * time.Millisecond, 390 * s, 2420 * s, 520 * s, true},
	}, retry.Preview(decorrelated))

	// Without jitter the default gives up after 14 attempts, at 69.1 h. All 16 take place only
	// if the jitter shortens the delays.
	byDefault := retry.Preview(retry.Default())
	require.Len(t, byDefault, 16)
	require.True(t, byDefault[13].Expected)
	require.Equal(t, 32800*s+5*12*h, byDefault[13].Nominal)
	require.False(t, byDefault[14].Expected)
	require.Equal(t, 72*h, byDefault[14].Nominal)
	require.Equal(t, 5*s, byDefault[1].Earliest)
	require.Equal(t, 10*s, byDefault[1].Latest)
	require.Equal(t, 20*s, byDefault[1].LatestAfter429)

	for _, preset := range retry.Presets() {
		previous := retry.PreviewAttempt{}
		for i, one := range retry.Preview(preset.Policy) {
			require.Equal(t, i+1, one.Number)
			require.LessOrEqual(t, previous.Earliest, one.Earliest)
			require.LessOrEqual(t, one.Earliest, one.Nominal)
			require.LessOrEqual(t, one.Latest, one.LatestAfter429)
			require.LessOrEqual(t, one.LatestAfter429, preset.Policy.GiveUpAfter)
			if one.Expected {
				require.LessOrEqual(t, one.Nominal, one.Latest)
			}
			previous = one
		}
	}
}
