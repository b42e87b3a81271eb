package retry_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// TestRandomNeverChanges: running workflows compute their timers with it.
func TestRandomNeverChanges(t *testing.T) {
	t.Parallel()

	require.InDelta(t, 0.6900130902964137, retry.Random(1, "delivery/evt_1/ep_1", "run"), 0)
	require.InDelta(t, 0.5872659281245968, retry.Random(2, "delivery/evt_1/ep_1", "run"), 0)
	require.NotEqual(t, retry.Random(1, "ab", "c"), retry.Random(1, "a", "bc"))
	require.NotEqual(t, retry.Random(1, "a"), retry.Random(1, "a", ""))
	require.NotEqual(t, retry.Random(11, "a"), retry.Random(1, "1a"))
}

// chiSquare returns the statistic of the numbers in [0,1) over the given number of
// equal bins. For 100 bins (99 degrees of freedom) it is above 149 once in a thousand.
func chiSquare(numbers []float64, bins int) float64 {
	counts := make([]int, bins)
	for _, u := range numbers {
		counts[int(u*float64(bins))]++
	}
	expected := float64(len(numbers)) / float64(bins)
	sum := 0.0
	for _, count := range counts {
		sum += (float64(count) - expected) * (float64(count) - expected) / expected
	}

	return sum
}

const chiSquare99 = 149

func TestRandomIsUniform(t *testing.T) {
	t.Parallel()

	var byID, byAttempt, pairs []float64
	for i := range 100_000 {
		u := retry.Random(1, "delivery/evt_"+strconv.Itoa(i)+"/ep_1", "run")
		v := retry.Random(2, "delivery/evt_"+strconv.Itoa(i)+"/ep_1", "run")
		byID = append(byID, u)
		byAttempt = append(byAttempt, retry.Random(i, "delivery/evt_1/ep_1", "run"))
		pairs = append(pairs, (math.Floor(u*10)+v)/10) // 10 × 10 squares
	}
	require.Less(t, chiSquare(byID, 100), float64(chiSquare99))
	require.Less(t, chiSquare(byAttempt, 100), float64(chiSquare99))
	require.Less(t, chiSquare(pairs, 100), float64(chiSquare99), "attempts of one delivery are independent")
}

// TestJitterIsUniform runs a Kolmogorov–Smirnov test over each jitter's window, from a
// fixed seed. 1.95/√n is exceeded once in a thousand.
func TestJitterIsUniform(t *testing.T) {
	t.Parallel()

	const n = 20_000
	for _, policy := range spreadingPolicies() {
		random := rand.New(rand.NewPCG(1, 2))
		earliest, latest := policy.Window(1, 0)
		delays := make([]float64, 0, n)
		for range n {
			delays = append(delays, float64(policy.Delay(1, 0, random.Float64())-earliest)/float64(latest-earliest))
		}
		slices.Sort(delays)
		distance := 0.0
		for i, delay := range delays {
			distance = max(distance, math.Abs(delay-float64(i)/n), math.Abs(delay-float64(i+1)/n))
		}
		require.Less(t, distance, 1.95/math.Sqrt(n), "%s %s", policy.Preset, policy.Jitter)
	}
}

// spreadingPolicies returns the presets, and one with each jitter they do not use.
func spreadingPolicies() []retry.Policy {
	var policies []retry.Policy
	for _, preset := range retry.Presets() {
		policies = append(policies, preset.Policy)
	}
	atCap := retry.Default()
	atCap.Jitter, atCap.JitterRatio, atCap.Cap = retry.JitterProportional, 0.5, atCap.Base
	decorrelated := retry.Default()
	decorrelated.Jitter = retry.JitterDecorrelated

	return append(policies, atCap, decorrelated)
}

// TestTogetherFailedComeBackApart: 10,000 deliveries that failed at one moment; no 1 %
// slice of their window, wherever it begins, holds more than 3 % of them.
func TestTogetherFailedComeBackApart(t *testing.T) {
	t.Parallel()

	const n = 10_000
	for _, policy := range spreadingPolicies() {
		for _, status := range []int{503, 429} {
			delays := make([]time.Duration, 0, n)
			for i := range n {
				verdict := policy.Next(retry.Progress{
					Attempts: 1, Outcome: retry.Outcome{Decision: retry.Retry, Status: status},
					Now: received(), GiveUpAt: received().Add(policy.GiveUpAfter),
					Random: retry.Random(1, "delivery/evt_"+strconv.Itoa(i)+"/ep_1", "run-"+strconv.Itoa(i*7)),
				})
				require.Equal(t, retry.Wait, verdict.Action)
				delays = append(delays, verdict.Delay)
			}
			slices.Sort(delays)
			earliest, latest := policy.Window(1, 0)
			slice := (latest - earliest) / 100
			if status == 429 {
				slice *= 2
			}
			end := 0
			for begin, delay := range delays {
				for end < n && delays[end] < delay+slice {
					end++
				}
				require.LessOrEqual(t, end-begin, n*3/100, "%s %s: too many from %s", policy.Preset, policy.Jitter, delay)
			}
		}
	}
}
