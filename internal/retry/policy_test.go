package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

func TestPresets(t *testing.T) {
	t.Parallel()

	type row struct {
		nominal     []time.Duration // the first delays
		jitter      retry.Jitter
		ratio       float64
		minDelay    time.Duration
		maxAttempts int
		giveUp      time.Duration
	}
	const s, m, h = time.Second, time.Minute, time.Hour
	table := map[string]row{
		"default": {
			[]time.Duration{10 * s, 30 * s, 90 * s, 270 * s, 810 * s, 2430 * s, 7290 * s, 21870 * s, 12 * h, 12 * h},
			retry.JitterEqual, 0, 0, 16, 72 * h,
		},
		"exponential-1h": {[]time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, h, h}, retry.JitterEqual, 0, 0, 16, 72 * h},
		"full-jitter":    {[]time.Duration{30 * s, m, 2 * m, 4 * m}, retry.JitterFull, 0, s, 5, 72 * h},
		"steps-90m":      {[]time.Duration{30 * s, 2 * m, 10 * m, h, h}, retry.JitterProportional, 0.2, 0, 5, 72 * h},
		"steps-36h":      {[]time.Duration{10 * s, 30 * s, 2 * m, 10 * m, 30 * m, 2 * h, 8 * h, 24 * h}, retry.JitterProportional, 0.2, 0, 9, 72 * h},
		"standard-webhooks": {
			[]time.Duration{5 * s, 5 * m, 30 * m, 2 * h, 5 * h, 10 * h, 14 * h, 20 * h, 24 * h},
			retry.JitterProportional, 0.1, 0, 10, 84 * h,
		},
		"fast": {[]time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, m, m}, retry.JitterFull, 0, 0, 5, h},
	}
	presets := retry.Presets()
	require.Len(t, presets, len(table))
	require.Equal(t, retry.Default(), presets[0].Policy)

	for _, preset := range presets {
		want, known := table[preset.Name]
		require.True(t, known, preset.Name)
		got := preset.Policy
		require.NoError(t, got.Validate(), preset.Name)
		require.Equal(t, preset.Name, got.Preset)
		require.Equal(t, want.jitter, got.Jitter, preset.Name)
		require.InDelta(t, want.ratio, got.JitterRatio, 0, preset.Name)
		require.Equal(t, want.minDelay, got.MinDelay, preset.Name)
		require.Equal(t, want.maxAttempts, got.MaxAttempts, preset.Name)
		require.Equal(t, want.giveUp, got.GiveUpAfter, preset.Name)
		require.Equal(t, []time.Duration{m, 15 * m, 2 * h, 12 * h, 24 * h}, got.AmbiguousDelays, preset.Name)
		require.Empty(t, got.PermanentStatuses, preset.Name)
		if preset.Name != "standard-webhooks" {
			require.Empty(t, got.RetryStatuses, preset.Name)
		}
		for i, delay := range want.nominal {
			require.Equal(t, delay, got.Nominal(i+1), "%s after attempt %d", preset.Name, i+1)
		}
	}

	_, found := retry.Lookup("DEFAULT")
	require.False(t, found)
}

func TestPresetsAreNotShared(t *testing.T) {
	t.Parallel()

	spoiled, found := retry.Lookup("steps-36h")
	require.True(t, found)
	spoiled.Schedule[0], spoiled.AmbiguousDelays[0] = 0, 0
	fresh, _ := retry.Lookup("steps-36h")
	require.Equal(t, 10*time.Second, fresh.Schedule[0])
	require.Equal(t, time.Minute, fresh.AmbiguousDelays[0])

	spoiled = preset(t, "standard-webhooks")
	copied := spoiled.Clone()
	require.True(t, copied.Equal(spoiled))
	spoiled.Schedule[0], spoiled.AmbiguousDelays[0], spoiled.RetryStatuses[0] = 0, 0, 0
	require.True(t, copied.Equal(preset(t, "standard-webhooks")))
}

func TestNominalStrategies(t *testing.T) {
	t.Parallel()

	linear := retry.Policy{Strategy: retry.StrategyLinear, Base: 10 * time.Second, Cap: 35 * time.Second}
	fixed := retry.Policy{Strategy: retry.StrategyFixed, Base: 7 * time.Second}
	for attempt, seconds := range []int{10, 10, 20, 30, 35, 35} {
		require.Equal(t, time.Duration(seconds)*time.Second, linear.Nominal(attempt), "attempt %d", attempt)
		require.Equal(t, 7*time.Second, fixed.Nominal(attempt), "attempt %d", attempt)
	}
	require.Equal(t, 35*time.Second, linear.Nominal(math.MaxInt))

	// 60 s, then the middle between 10 s and three times the previous delay, up to the cap.
	decorrelated := retry.Policy{
		Strategy: retry.StrategyFixed, Base: 10 * time.Second, Cap: time.Minute, Jitter: retry.JitterDecorrelated,
	}
	for i, want := range []time.Duration{20 * time.Second, 35 * time.Second, 57500 * time.Millisecond, time.Minute, time.Minute} {
		require.Equal(t, want, decorrelated.Nominal(i+1))
	}
}

func TestNominalDoesNotOverflow(t *testing.T) {
	t.Parallel()

	policy := retry.Policy{Strategy: retry.StrategyExponential, Base: time.Second, Factor: 10, Cap: 12 * time.Hour}
	for _, attempt := range []int{29, 30, 63, 64, 65, 10_000, math.MaxInt32, math.MaxInt} {
		require.Equal(t, 12*time.Hour, policy.Nominal(attempt), "attempt %d", attempt)
	}
	policy.Factor = 1
	require.Equal(t, time.Second, policy.Nominal(10_000))
}

// TestDelayOfEveryJitter checks the formulas of docs/retries.md at the ends and in the middle.
func TestDelayOfEveryJitter(t *testing.T) {
	t.Parallel()

	const s = time.Second
	base := retry.Policy{Strategy: retry.StrategyExponential, Base: 10 * s, Factor: 3, Cap: 100 * s}
	with := func(jitter retry.Jitter, ratio float64, minDelay time.Duration) retry.Policy {
		policy := base
		policy.Jitter, policy.JitterRatio, policy.MinDelay = jitter, ratio, minDelay

		return policy
	}
	const below1 = 1 - 1.0/(1<<53)
	table := []struct {
		name                string
		policy              retry.Policy
		attempt             int
		previous            time.Duration
		least, middle, most time.Duration
	}{
		{"none", with(retry.JitterNone, 0, 0), 2, 0, 30 * s, 30 * s, 30 * s},
		{"none, floor", with(retry.JitterNone, 0, 40*s), 2, 0, 40 * s, 40 * s, 40 * s},
		{"full", with(retry.JitterFull, 0, 0), 2, 0, 0, 15 * s, 30*s - 1},
		{"full, floor", with(retry.JitterFull, 0, 10*s), 2, 0, 10 * s, 20 * s, 30*s - 1},
		{"full, floor above", with(retry.JitterFull, 0, 40*s), 2, 0, 40 * s, 40 * s, 40 * s},
		{"equal", with(retry.JitterEqual, 0, 0), 2, 0, 15 * s, 22500 * time.Millisecond, 30*s - 1},
		{"proportional", with(retry.JitterProportional, 0.5, 0), 2, 0, 15 * s, 30 * s, 45*s - 1},
		{"proportional at the cap", with(retry.JitterProportional, 0.5, 0), 9, 0, 50 * s, 75 * s, 100*s - 1},
		{"decorrelated, first", with(retry.JitterDecorrelated, 0, 0), 1, 0, 10 * s, 20 * s, 30*s - 1},
		{"decorrelated", with(retry.JitterDecorrelated, 0, 0), 2, 30 * s, 10 * s, 50 * s, 90*s - 1},
		{"decorrelated at the cap", with(retry.JitterDecorrelated, 0, 0), 3, 90 * s, 10 * s, 100 * s, 100 * s},
		{"decorrelated after a long wait", with(retry.JitterDecorrelated, 0, 0), 3, math.MaxInt64, 10 * s, 100 * s, 100 * s},
		{"decorrelated after an endless wait", with(retry.JitterDecorrelated, 0, 0), 3, math.MaxInt64 / 2, 10 * s, 100 * s, 100 * s},
		{"decorrelated, floor", with(retry.JitterDecorrelated, 0, 20*s), 1, 0, 20 * s, 25 * s, 30*s - 1},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, u := range []float64{0, -1, math.Inf(-1), math.NaN()} {
				require.Equal(t, row.least, row.policy.Delay(row.attempt, row.previous, u), "u %v", u)
			}
			require.Equal(t, row.middle, row.policy.Delay(row.attempt, row.previous, 0.5))
			for _, u := range []float64{below1, 1, 2, math.Inf(1)} {
				require.InDelta(t, row.most, row.policy.Delay(row.attempt, row.previous, u), 10, "u %v", u)
				require.LessOrEqual(t, row.policy.Delay(row.attempt, row.previous, u), row.most, "u %v", u)
			}
		})
	}
}

// anyDuration draws all magnitudes with equal probability.
func anyDuration(low, high time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		top := rapid.SampledFrom([]time.Duration{
			time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour,
		}).Draw(t, "unit")

		return min(max(time.Duration(rapid.Int64Range(0, int64(top)).Draw(t, "ns")), low), high)
	})
}

// validPolicy draws a policy that Validate accepts and that sets no unused setting.
func validPolicy() *rapid.Generator[retry.Policy] {
	return rapid.Custom(func(t *rapid.T) retry.Policy {
		policy := retry.Policy{
			Strategy: rapid.SampledFrom([]retry.Strategy{
				retry.StrategyFixed, retry.StrategyLinear, retry.StrategyExponential, retry.StrategySchedule,
			}).Draw(t, "strategy"),
			Jitter: rapid.SampledFrom([]retry.Jitter{
				retry.JitterNone, retry.JitterFull, retry.JitterEqual, retry.JitterProportional, retry.JitterDecorrelated,
			}).Draw(t, "jitter"),
			MaxAttempts:   rapid.IntRange(1, retry.MostAttempts).Draw(t, "attempts"),
			GiveUpAfter:   anyDuration(retry.ShortestGiveUp, retry.LongestGiveUp).Draw(t, "give up"),
			MaxRetryAfter: anyDuration(0, retry.LongestRetryAfter).Draw(t, "max retry after"),
		}
		delay := anyDuration(retry.ShortestDelay, retry.LongestDelay)
		policy.AmbiguousDelays = rapid.SliceOfN(delay, 0, retry.MostAmbiguous).Draw(t, "ambiguous")

		longest := time.Duration(0)
		if policy.Strategy == retry.StrategySchedule {
			policy.Schedule = rapid.SliceOfN(delay, 1, 12).Draw(t, "schedule")
			if policy.Jitter == retry.JitterDecorrelated {
				policy.Jitter = retry.JitterFull
			}
			for _, step := range policy.Schedule {
				longest = max(longest, step)
			}
		} else {
			policy.Base = delay.Draw(t, "base")
			longest = policy.Base
		}
		if policy.Strategy == retry.StrategyLinear || policy.Strategy == retry.StrategyExponential ||
			policy.Jitter == retry.JitterDecorrelated {
			policy.Cap = anyDuration(policy.Base, retry.LongestDelay).Draw(t, "cap")
			longest = policy.Cap
		}
		if policy.Strategy == retry.StrategyExponential {
			policy.Factor = rapid.Float64Range(1, retry.LargestFactor).Draw(t, "factor")
		}
		if policy.Jitter == retry.JitterProportional {
			policy.JitterRatio = rapid.Float64Range(0.001, 1).Draw(t, "ratio")
		}
		if rapid.Bool().Draw(t, "has floor") {
			policy.MinDelay = anyDuration(0, longest).Draw(t, "floor")
		}
		for _, status := range rapid.SliceOfNDistinct(rapid.IntRange(400, 999), 0, 8, rapid.ID[int]).Draw(t, "statuses") {
			if status%2 == 0 {
				policy.RetryStatuses = append(policy.RetryStatuses, status)
			} else {
				policy.PermanentStatuses = append(policy.PermanentStatuses, status)
			}
		}

		return policy
	})
}

func TestDelayStaysWithinItsBounds(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		policy := validPolicy().Draw(t, "policy")
		require.NoError(t, policy.Validate())
		attempt := rapid.IntRange(1, 10_000).Draw(t, "attempt")
		previous := time.Duration(rapid.Int64().Draw(t, "previous"))
		u := rapid.Float64Range(0, 1).Draw(t, "u")

		delay := policy.Delay(attempt, previous, u)
		earliest, latest := policy.Window(attempt, previous)
		require.LessOrEqual(t, earliest, delay)
		require.LessOrEqual(t, delay, latest)
		require.GreaterOrEqual(t, earliest, time.Duration(0))
		require.GreaterOrEqual(t, delay, policy.MinDelay)

		bound := policy.Cap
		if bound == 0 {
			bound = policy.Nominal(attempt)
			if policy.Jitter == retry.JitterProportional {
				bound += time.Duration(policy.JitterRatio * float64(bound))
			}
		}
		require.LessOrEqual(t, delay, bound, "the strategy's bound")
	})
}

// TestNoPolicyOverflows draws settings that Validate would refuse.
func TestNoPolicyOverflows(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		wild := func(name string) time.Duration { return time.Duration(rapid.Int64().Draw(t, name)) }
		policy := retry.Policy{
			Strategy: retry.Strategy(rapid.Uint8Range(0, 6).Draw(t, "strategy")),
			Base:     wild("base"), Cap: wild("cap"), MinDelay: wild("floor"),
			Factor:      rapid.SampledFrom([]float64{0, -1, 0.5, 1, 10, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "factor"),
			Schedule:    []time.Duration{wild("first"), wild("second")}[:rapid.IntRange(0, 2).Draw(t, "steps")],
			Jitter:      retry.Jitter(rapid.Uint8Range(0, 6).Draw(t, "jitter")),
			JitterRatio: rapid.SampledFrom([]float64{0, -1, 0.5, 1e300, math.NaN(), math.Inf(1)}).Draw(t, "ratio"),
			GiveUpAfter: wild("give up"),
			MaxAttempts: rapid.Int().Draw(t, "max attempts"),

			AmbiguousDelays: []time.Duration{wild("first ambiguous"), wild("second ambiguous")}[:rapid.IntRange(0, 2).Draw(t, "ambiguous delays")],
		}
		attempt := rapid.Int().Draw(t, "attempt")
		previous := wild("previous")
		for _, u := range []float64{0, 0.999, math.NaN(), 7} {
			delay := policy.Delay(attempt, previous, u)
			require.GreaterOrEqual(t, delay, time.Duration(0))
			require.LessOrEqual(t, delay, 3*retry.LongestDelay)
		}
		earliest, latest := policy.Window(attempt, previous)
		require.LessOrEqual(t, earliest, latest)
		require.GreaterOrEqual(t, policy.Nominal(attempt), time.Duration(0))

		verdict := policy.Next(retry.Progress{
			Attempts: attempt, Previous: previous, Random: rapid.Float64().Draw(t, "u"),
			Ambiguous: rapid.Int().Draw(t, "ambiguous in a row"),
			Outcome: retry.Outcome{
				Decision: retry.Retry, Status: 429, RetryAfter: wild("retry after"), Ambiguous: rapid.Bool().Draw(t, "ambiguous"),
			},
			Now: time.Unix(rapid.Int64().Draw(t, "now"), 0), GiveUpAt: time.Unix(rapid.Int64().Draw(t, "give up at"), 0),
		})
		require.GreaterOrEqual(t, verdict.Delay, time.Duration(0))
		for _, one := range append(retry.Preview(policy), retry.PreviewAmbiguous(policy)...) {
			require.GreaterOrEqual(t, one.Number, 1)
		}
	})
}
