package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However requests come, no second has more of them than the rate, or than one group more where a mark stands for several; and none waits while
// fewer than that have begun.
func TestLastSecond(t *testing.T) {
	t.Parallel()
	require.Equal(t, lastSecond{length: time.Second, most: 20, group: 1}, windowOf(20))
	require.Equal(t, lastSecond{length: time.Second, most: 250, group: 40}, windowOf(10_000))
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.IntRange(1, 600).Draw(t, "rate"))
		w := windowOf(rate)
		now := time.Duration(0)
		var begun []time.Duration
		for range 2*int(rate) + 10 {
			now += time.Duration(rapid.Int64Range(0, int64(2*time.Second/time.Duration(rate))).Draw(t, "pause"))
			at := w.next(now)
			w.add(at)
			begun = append(begun, at)
		}
		for i := range begun {
			if next := i + int(w.most*w.group+w.group) - 1; next < len(begun) {
				require.GreaterOrEqual(t, begun[next]-begun[i], w.length)
			}
		}
	})
}

func TestLastSecondBelowOnePerSecond(t *testing.T) {
	t.Parallel()
	w := windowOf(0.5)
	w.add(w.next(time.Second))
	require.Equal(t, 2*time.Second, w.next(time.Second))
	require.Equal(t, 4*time.Second, w.next(4*time.Second))
	w.set(2)
	require.Equal(t, time.Second, w.next(time.Second), "a higher rate applies at once")
}

func windowOf(rate float64) (w lastSecond) {
	w.set(rate)
	return w
}
