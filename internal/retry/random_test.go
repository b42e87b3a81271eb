package retry_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// TestRandomNeverChanges: running workflows compute their timers with Random.
func TestRandomNeverChanges(t *testing.T) {
	t.Parallel()

	require.InDelta(t, 0.6900130902964137, retry.Random(1, "delivery/evt_1/ep_1", "run"), 0)
	require.InDelta(t, 0.5872659281245968, retry.Random(2, "delivery/evt_1/ep_1", "run"), 0)
	require.NotEqual(t, retry.Random(1, "ab", "c"), retry.Random(1, "a", "bc"))
	require.NotEqual(t, retry.Random(1, "a"), retry.Random(1, "a", ""))
	require.NotEqual(t, retry.Random(11, "a"), retry.Random(1, "1a"))
}

// chiSquare returns the statistic of numbers in [0,1) over the given number of equal bins. For
// 100 bins (99 degrees of freedom) it exceeds 149 with a probability of 1 in 1,000.
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
