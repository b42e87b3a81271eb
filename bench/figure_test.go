package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Millisecond // worst first
	}
	for _, c := range []struct {
		name             string
		of               []time.Duration
		p50, p95, p99    float64
		nothingAtAllThen bool
	}{
		{name: "none", nothingAtAllThen: true},
		{name: "one", of: []time.Duration{1500 * time.Microsecond}, p50: 1.5, p95: 1.5, p99: 1.5},
		{name: "two", of: []time.Duration{2e6, 1e6}, p50: 1, p95: 2, p99: 2},
		{name: "a hundred", of: hundred, p50: 50, p95: 95, p99: 99},
		{name: "a hundred and one", of: append([]time.Duration{1e9}, hundred...), p50: 51, p95: 96, p99: 100},
	} {
		f := figures{}
		f.setQuantiles(c.of, acceptP50, acceptP95, acceptP99)
		if c.nothingAtAllThen {
			require.Empty(t, f)
			continue
		}
		require.Equal(t, figures{acceptP50: c.p50, acceptP95: c.p95, acceptP99: c.p99}, f, c.name)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		of   []figures
		want figures
	}{
		{"none", nil, figures{}},
		{"one", []figures{{cpuGo: 0.5, lost: 1}}, figures{cpuGo: 0.5, lost: 1}},
		{"two", []figures{{cpuGo: 1}, {cpuGo: 2}}, figures{cpuGo: 1.5}},
		{"three, in no order", []figures{{cpuGo: 9}, {cpuGo: 1}, {cpuGo: 2}}, figures{cpuGo: 2}},
		{"some only", []figures{{cpuGo: 1}, {cpuGo: 3, rssMax: 100}, {}}, figures{cpuGo: 2, rssMax: 100}},
		{"what is lost is not hidden", []figures{{lost: 0}, {lost: 1}, {lost: 0}}, figures{lost: 1}},
		{"what comes twice is not hidden", []figures{{duplicates: 2}, {duplicates: 0}, {duplicates: 3}}, figures{duplicates: 5}},
	} {
		require.Equal(t, c.want, median(c.of), c.name)
	}
}

func TestPer(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2000, per(1000, 500*time.Millisecond), 0)
	require.Zero(t, per(1000, 0))
}
