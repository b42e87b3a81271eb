package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	posts := []post{{"a", 10 * ms}, {"b", 20 * ms}, {"c", 30 * ms}, {"d", 40 * ms}}
	o := match(posts, []arrival{
		{"a", 12 * ms, true},
		{"b", 21 * ms, false}, // failed first
		{"x", 22 * ms, true},
		{"b", 29 * ms, true},
		{"a", 50 * ms, true}, // again
		{"c", 60 * ms, false},
		{"d", 41 * ms, true},
	})
	require.Equal(t, outcome{latencies: []time.Duration{ms, 2 * ms, 9 * ms}, missing: 1, again: 1, unexpected: 1}, o)
	require.InDelta(t, 2, o.quantile(50), 0)
	require.InDelta(t, 9, o.quantile(99), 0)
	require.Zero(t, (&outcome{}).quantile(99))
}

func TestPerSecond(t *testing.T) {
	t.Parallel()
	at := func(all ...int) (arrivals []arrival) {
		for _, d := range all {
			arrivals = append(arrivals, arrival{at: time.Duration(d) * time.Millisecond})
		}
		return arrivals
	}
	arrivals := at(999, 1000, 1999, 2000, 3499, 3500)
	require.Equal(t, []int{2, 1, 1}, perSecond(arrivals, time.Second, 3500*time.Millisecond))
	require.Len(t, between(arrivals, time.Second, 2*time.Second), 2)
	require.Empty(t, perSecond(arrivals, time.Second, 0))
	require.Equal(t, 2, busiest([]int{1, 2, 0}))
	require.Zero(t, busiest(nil))
	require.Equal(t, []float64{2, 3}, smooth([]int{1, 3, 3}, 2))
}

func TestDrained(t *testing.T) {
	t.Parallel()
	posts := []post{{"a", 1}, {"b", 2}, {"c", 10}}
	arrivals := []arrival{{"a", 3, true}, {"b", 20, true}, {"b", 40, false}, {"c", 30, true}}
	require.Equal(t, time.Duration(20), drained(posts, arrivals, 10))
	require.Equal(t, 2, goodOnes([]arrival{{"a", 1, true}, {"a", 2, true}, {"b", 3, true}, {"c", 3, false}}))
	require.Equal(t, time.Duration(10), drained(posts, nil, 10), "nothing came")
}
