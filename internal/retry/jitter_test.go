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

// The statistics below run over fixed ids, so they come out the same every time. A
// jitter that is as it should be fails each of them with a probability of one in ten
// thousand: that is how the bounds are chosen, and how sure a failure is.
const (
	// kolmogorov bounds the Kolmogorov–Smirnov statistic D × √n: 2 exp(−2 × 2.23²) = 10⁻⁴.
	kolmogorov = 2.23
	// chiSquare100 bounds chiSquare over 100 bins (99 degrees of freedom).
	chiSquare100 = 161
	// sigmas bounds how far a count may be from its mean, in standard deviations.
	sigmas = 3.9
)

// deliveryIDs returns the ids of n deliveries of one endpoint: their events follow each
// other within a second, as they do when a receiver goes down under load.
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

// random is the number that an attempt of a delivery draws, as activities.Attempt asks
// for it.
func random(id string, run, attempt int) float64 {
	return retry.Random(attempt, id, strconv.Itoa(run))
}

// jittered returns policies with each kind of jitter: all presets, and one with each
// jitter, floor and strategy that no preset has.
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

// requireUniform holds delays against U[low, high): none is outside, their whole
// distribution is right (Kolmogorov–Smirnov), and so is every hundredth of it (χ²).
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

// TestJitterIsUniform: over the hash of real ids, runs and attempts, every jitter is
// uniform between the bounds that Window gives.
func TestJitterIsUniform(t *testing.T) {
	t.Parallel()

	ids := deliveryIDs(20_000)
	for name, policy := range jittered() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for run := 1; run <= 2; run++ {
				for attempt := 1; attempt <= 4; attempt++ {
					// Decorrelated jitter grows from the delay before. Twice the base leads to a
					// window that the cap does not cut.
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

// TestDecorrelatedJitterAtTheCap: what would be above the cap is the cap, the rest is
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

// TestNoJitterIsNoJitter: the number drawn does not count.
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

// TestAttemptsAreIndependent: neither the attempt before, nor the run before, nor the
// neighbour's delivery tells anything about a delay.
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
		squares := make([]float64, 0, len(ids)-1) // 10 × 10 of them
		for i := range len(ids) - 1 {
			u, v := pair(i)
			squares = append(squares, (math.Floor(u*10)+v)/10)
		}
		require.Less(t, chiSquare(squares, 100), float64(chiSquare100), name)
	}
}

// TestTogetherFailedComeBackApart: 10,000 deliveries that failed at one moment. No
// hundredth of the window of their second attempts, wherever it begins, holds more
// than 3 % of them; nor of their third, after delays that differed already.
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
			require.LessOrEqual(t, earliest, slices.Min(third), "one was given up")
			slice := (latest - earliest) / 100
			if status == 429 {
				slice *= 2
			}
			require.LessOrEqual(t, crowd(second, slice), n*3/100, "%s, %d", name, status)
			require.LessOrEqual(t, crowd(third, slice), n*3/100, "%s, %d", name, status)
		}
	}
}

// crowd is how many of the moments the fullest span of the given length holds.
func crowd(moments []time.Duration, span time.Duration) int {
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
