package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrends(t *testing.T) {
	t.Parallel()
	var samples []sample
	for n := range 60 {
		noise := float64(n%2) - 0.5
		samples = append(samples, sample{time.Duration(n) * time.Minute, map[string]float64{
			"flat": 100 + 4*noise, "grows": 100 + float64(n) + 4*noise, "falls": 100 - float64(n) + 4*noise,
		}})
	}
	all := trends(samples)
	require.Equal(t, "falls", all[0].Name)
	require.InDelta(t, -60, all[0].Slope, 1)
	require.False(t, all[0].grows())
	require.InDelta(t, 100, all[1].Mean, 0.1)
	require.InDelta(t, 0, all[1].Slope, all[1].Error)
	require.False(t, all[1].grows())
	require.InDelta(t, 60, all[2].Slope, all[2].Error)
	require.True(t, all[2].grows())

	none := trends(samples[:1])[1]
	require.Zero(t, none.Slope)
	require.False(t, none.grows())
}

// The classes of a soak end no process, so that what they use can be compared.
func TestSoakKeepsProcesses(t *testing.T) {
	t.Parallel()
	kept := map[string]bool{}
	for _, c := range classes() {
		kept[c.name] = c.keepsProcesses()
	}
	require.True(t, kept["postgres-kill"])
	require.True(t, kept["receivers-hang"])
	require.False(t, kept["kill-worker"])
	require.False(t, kept["at-send-before"])
	require.False(t, kept[powerCut])
}
