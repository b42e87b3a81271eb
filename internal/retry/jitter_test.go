package retry_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// The statistics below use fixed ids, so they are the same in every run. The bounds are chosen
// so that a correct jitter would fail each of them with a probability of 1 in 10,000.
const (
	// kolmogorov limits the Kolmogorov–Smirnov statistic D × √n: 2 exp(−2 × 2.23²) = 10⁻⁴.
	kolmogorov = 2.23
	// chiSquare100 limits chiSquare over 100 bins (99 degrees of freedom).
	chiSquare100 = 161
	// sigmas limits the distance of a count from its mean, in standard deviations.
	sigmas = 3.9
)

// deliveryIDs returns the ids of n deliveries of one endpoint, whose events were created
// within a second, as when a receiver fails under load.
func deliveryIDs(n int) []string {
	random := rand.New(rand.NewPCG(11, 13))
	var endpoint webhook.EndpointID
	binary.BigEndian.PutUint64(endpoint[8:], random.Uint64())
	ids := make([]string, 0, n)
	for i := range n {
		var event webhook.EventID
		binary.BigEndian.PutUint64(event[:8], uint64(received().UnixMilli()+int64(i*1000/n))<<16)
		binary.BigEndian.PutUint64(event[8:], random.Uint64())
		ids = append(ids, webhook.DeliveryIDOf(event, endpoint).String())
	}

	return ids
}

// random returns the random number of an attempt, computed as package activities does.
func random(id string, run, attempt int) float64 {
	return retry.Random(attempt, id, strconv.Itoa(run))
}

// jittered returns policies with each kind of jitter: all presets, and the combinations of
// jitter, minimum and strategy that no preset has.
func jittered() map[string]retry.Policy {
	policies := map[string]retry.Policy{}
	for _, preset := range retry.Presets() {
		policies[preset.Name] = preset.Policy
	}
	for _, jitter := range []retry.Jitter{retry.JitterFull, retry.JitterEqual, retry.JitterProportional, retry.JitterDecorrelated} {
		policy := retry.Default()
		policy.Jitter = jitter
		if jitter == retry.JitterProportional {
			policy.JitterRatio = 0.5
		}
		policies[jitter.String()+" exponential"] = policy

		policy.MinDelay = policy.Base // above half of the shortest window, below its end
		if jitter == retry.JitterFull || jitter == retry.JitterEqual {
			policy.MinDelay = policy.Base * 3 / 4
		}
		policies[jitter.String()+" with a floor"] = policy

		policy.MinDelay, policy.Strategy, policy.Base = 0, retry.StrategyLinear, time.Hour
		policies[jitter.String()+" linear"] = policy
	}
	atCap := retry.Default()
	atCap.Jitter, atCap.JitterRatio, atCap.Cap = retry.JitterProportional, 0.5, atCap.Base
	policies["proportional at the cap"] = atCap

	return policies
}

// distance is the Kolmogorov–Smirnov statistic D × √n of numbers against U[0,1).
func distance(numbers []float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	n := float64(len(sorted))
	most := 0.0
	for i, u := range sorted {
		most = max(most, math.Abs(u-float64(i)/n), math.Abs(u-float64(i+1)/n))
	}

	return most * math.Sqrt(n)
}

// requireUniform compares delays with U[low, high): none is outside, and the distribution is
// right as a whole (Kolmogorov–Smirnov) and in every hundredth (χ²).
func requireUniform(t *testing.T, delays []time.Duration, low, high time.Duration, name string) {
	t.Helper()
	shares := make([]float64, 0, len(delays))
	require.LessOrEqual(t, low, slices.Min(delays), name)
	require.Less(t, slices.Max(delays), high, name)
	for _, delay := range delays {
		shares = append(shares, float64(delay-low)/float64(high-low))
	}
	require.Less(t, distance(shares), kolmogorov, name)
	require.Less(t, chiSquare(shares, 100), float64(chiSquare100), name)
}

// TestJitterIsUniform: for the hashes of real ids, runs and attempts, every jitter is uniform
// between the bounds that Window returns.
func TestJitterIsUniform(t *testing.T) {
	t.Parallel()

	ids := deliveryIDs(20_000)
	for name, policy := range jittered() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for run := 1; run <= 2; run++ {
				for attempt := 1; attempt <= 4; attempt++ {
					// Decorrelated jitter depends on the previous delay. With twice the base the
					// window is below the cap.
					previous := time.Duration(attempt) * policy.Base
					low, high := policy.Window(attempt, previous)
					delays := make([]time.Duration, 0, len(ids))
					for _, id := range ids {
						delays = append(delays, policy.Delay(attempt, previous, random(id, run, attempt)))
					}
					requireUniform(t, delays, low, high, fmt.Sprintf("run %d, attempt %d", run, attempt))
				}
			}
		})
	}
}

// TestDecorrelatedJitterAtTheCap: delays above the cap are set to the cap, the others are
// uniform below it.
func TestDecorrelatedJitterAtTheCap(t *testing.T) {
	t.Parallel()

	policy := retry.Policy{
		Strategy: retry.StrategyExponential, Base: 10 * time.Second, Factor: 2, Cap: 100 * time.Second, Jitter: retry.JitterDecorrelated,
		MaxAttempts: 9, GiveUpAfter: time.Hour,
	}
	ids := deliveryIDs(20_000)
	below := []time.Duration{}
	for _, id := range ids {
		if delay := policy.Delay(5, 70*time.Second, random(id, 1, 5)); delay < policy.Cap {
			below = append(below, delay)
		} else {
			require.Equal(t, policy.Cap, delay)
		}
	}
	requireUniform(t, below, policy.Base, policy.Cap, "below the cap")
	share, n := 90.0/200, float64(len(ids)) // of U[10 s, 210 s)
	require.InDelta(t, share*n, len(below), sigmas*math.Sqrt(n*share*(1-share)))
}

// TestNoJitterIsNoJitter: the random number has no effect.
func TestNoJitterIsNoJitter(t *testing.T) {
	t.Parallel()

	policy := retry.Default()
	policy.Jitter = retry.JitterNone
	for attempt := 1; attempt <= policy.MaxAttempts; attempt++ {
		for _, id := range deliveryIDs(100) {
			require.Equal(t, policy.Nominal(attempt), policy.Delay(attempt, 0, random(id, 1, attempt)))
		}
	}
}

// TestAttemptsAreIndependent: a delay does not depend on the previous attempt, the previous
// run or the neighbouring delivery.
func TestAttemptsAreIndependent(t *testing.T) {
	t.Parallel()

	ids := deliveryIDs(20_001)
	pairs := map[string]func(i int) (u, v float64){
		"attempts":   func(i int) (u, v float64) { return random(ids[i], 1, 1), random(ids[i], 1, 2) },
		"runs":       func(i int) (u, v float64) { return random(ids[i], 1, 1), random(ids[i], 2, 1) },
		"deliveries": func(i int) (u, v float64) { return random(ids[i], 1, 1), random(ids[i+1], 1, 1) },
		"run 1, attempt 2 and run 2, attempt 1": func(i int) (u, v float64) {
			return random(ids[i], 1, 2), random(ids[i], 2, 1)
		},
	}
	for name, pair := range pairs {
		squares := make([]float64, 0, len(ids)-1) // 10 × 10 squares
		for i := range len(ids) - 1 {
			u, v := pair(i)
			squares = append(squares, (math.Floor(u*10)+v)/10)
		}
		require.Less(t, chiSquare(squares, 100), float64(chiSquare100), name)
	}
}

// TestTogetherFailedComeBackApart: 10,000 deliveries fail at the same time. No hundredth of
// the window of their second attempts contains more than 3 % of them. The same holds for their
// third attempts, whose previous delays differ.
func TestTogetherFailedComeBackApart(t *testing.T) {
	t.Parallel()

	const n = 10_000
	ids := deliveryIDs(n)
	for name, policy := range jittered() {
		for _, status := range []int{503, 429} {
			second, third := make([]time.Duration, 0, n), make([]time.Duration, 0, n)
			for _, id := range ids {
				progress := retry.Progress{
					Attempts: 1, Outcome: retry.Outcome{Decision: retry.Retry, Status: status},
					Now: received(), GiveUpAt: received().Add(policy.GiveUpAfter), Random: random(id, 1, 1),
				}
				verdict := policy.Next(progress)
				second = append(second, verdict.Delay)

				progress.Attempts, progress.Previous, progress.Now, progress.Random = 2, verdict.Delay, verdict.At, random(id, 1, 2)
				verdict = policy.Next(progress)
				third = append(third, verdict.At.Sub(received()))
			}
			earliest, latest := policy.Window(1, 0)
			require.LessOrEqual(t, earliest, slices.Min(second))
			require.LessOrEqual(t, earliest, slices.Min(third), "a delivery was given up")
			slice := (latest - earliest) / 100
			if status == 429 {
				slice *= 2
			}
			require.LessOrEqual(t, concurrency(second, slice), n*3/100, "%s, %d", name, status)
			require.LessOrEqual(t, concurrency(third, slice), n*3/100, "%s, %d", name, status)
		}
	}
}

// concurrency returns the largest number of times within any span of the given length.
func concurrency(moments []time.Duration, span time.Duration) int {
	sorted := slices.Sorted(slices.Values(moments))
	most, end := 0, 0
	for begin, moment := range sorted {
		for end < len(sorted) && sorted[end] < moment+span {
			end++
		}
		most = max(most, end-begin)
	}

	return most
}
