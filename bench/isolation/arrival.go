package main

import (
	"slices"
	"time"
)

// outcome is the result of a set of events.
type outcome struct {
	latencies  []time.Duration // from the time an event was due to its first 200; sorted
	missing    int             // events without a 200
	again      int             // further 200s
	unexpected int             // 200s for events of another set
}

// match computes the outcome of the events.
func match(posts []post, arrivals []arrival) outcome {
	var o outcome
	first := make(map[string]time.Duration, len(arrivals))
	wanted := make(map[string]bool, len(posts))
	for _, p := range posts {
		wanted[p.event] = true
	}
	for _, a := range arrivals {
		_, had := first[a.event]
		switch {
		case !a.good:
		case !wanted[a.event]:
			o.unexpected++
		case had:
			o.again++
		default:
			first[a.event] = a.at
		}
	}
	for _, p := range posts {
		if at, ok := first[p.event]; ok {
			o.latencies = append(o.latencies, at-p.due)
		} else {
			o.missing++
		}
	}
	slices.Sort(o.latencies)
	return o
}

// quantile returns the smallest latency that is not below that many percent of them
// (nearest rank), in milliseconds; 0 when there is none.
func (o *outcome) quantile(percent int) float64 {
	if len(o.latencies) == 0 {
		return 0
	}
	return float64(o.latencies[(len(o.latencies)*percent+99)/100-1]) / float64(time.Millisecond)
}

// goodOnes returns how many different events got a 200.
func goodOnes(arrivals []arrival) int {
	seen := make(map[string]bool, len(arrivals))
	for _, a := range arrivals {
		if a.good {
			seen[a.event] = true
		}
	}
	return len(seen)
}

// perSecond counts the arrivals in each second between two times.
func perSecond(arrivals []arrival, from, to time.Duration) []int {
	counts := make([]int, max(0, int((to-from+time.Second-1)/time.Second)))
	for _, a := range arrivals {
		if a.at >= from && a.at < to {
			counts[(a.at-from)/time.Second]++
		}
	}
	return counts
}

// between returns the arrivals in an interval.
func between(arrivals []arrival, from, to time.Duration) []arrival {
	var some []arrival
	for _, a := range arrivals {
		if a.at >= from && a.at < to {
			some = append(some, a)
		}
	}
	return some
}

// busiest is the highest number per second; 0 when there is none.
func busiest(counts []int) int {
	if len(counts) == 0 {
		return 0
	}
	return slices.Max(counts)
}

// smooth returns the mean of each n consecutive seconds.
func smooth(counts []int, n int) []float64 {
	var means []float64
	for i := n; i <= len(counts); i++ {
		sum := 0
		for _, c := range counts[i-n : i] {
			sum += c
		}
		means = append(means, float64(sum)/float64(n))
	}
	return means
}
