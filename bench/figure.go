package main

import (
	"math"
	"slices"
	"time"
)

// metric is the name of a figure, also in the JSON of a stored run. It includes the unit.
type metric string

const (
	deliveriesPerSecond metric = "deliveries_per_s"  // first publish to last arrival
	ofCeiling           metric = "of_ceiling"        // deliveriesPerSecond relative to the plain loop's
	acceptedPerSecond   metric = "accepted_per_s"    // events; first publish to last 202
	acceptP50           metric = "accept_ms_p50"     // from the time the event was due to its 202
	acceptP95           metric = "accept_ms_p95"     //
	acceptP99           metric = "accept_ms_p99"     //
	endToEndP50         metric = "end_to_end_ms_p50" // from the time the event was due to the request that got a 2xx
	endToEndP95         metric = "end_to_end_ms_p95" //
	endToEndP99         metric = "end_to_end_ms_p99" //
	drain               metric = "drain_s"           // last 202 to last arrival
	cpuGo               metric = "cpu_go_ms"         // per delivery: the everpost process
	cpuPostgres         metric = "cpu_postgres_ms"   // per delivery: its PostgreSQL
	cpuBench            metric = "cpu_bench_ms"      // per delivery: this program, publisher and receiver
	cpuOthers           metric = "cpu_others_cores"  // used by other programs meanwhile
	rssMax              metric = "rss_max_mib"       // of the everpost process, since its start
	lost                metric = "lost"              // accepted, neither delivered nor open
	duplicates          metric = "duplicates"        // requests after a 2xx
	refused             metric = "refused"           // responses 429 and 503 of the API; the event was posted again
	stillOpen           metric = "still_open"        // accepted, waiting for an attempt at the timeout

	restGo          metric = "rest_go_percent" // of one core
	restPostgres    metric = "rest_postgres_percent"
	rssRest         metric = "rss_rest_mib"
	fillTime        metric = "fill_s"   // until every waiting delivery has failed once and is recorded as retrying
	settleTime      metric = "settle_s" // from then until the CPU is steady
	acceptRatio     metric = "accepted_ratio"
	throughputRatio metric = "deliveries_ratio"

	latencyRatio metric = "end_to_end_p50_ratio"
	ofLoop       metric = "end_to_end_p50_of_loop" // endToEndP50 relative to the plain loop's at the same rate
	retainTime   metric = "retain_s"

	pageP50  metric = "page_ms_p50" // from the request to the end of the page
	pageP95  metric = "page_ms_p95"
	pageP99  metric = "page_ms_p99"
	pageKiB  metric = "page_kib_max"
	p99Ratio metric = "end_to_end_p99_ratio"

	firstStart  metric = "first_start_s" // on an empty directory, exec to ready
	secondStart metric = "second_start_s"
	stopTime    metric = "stop_s" // SIGTERM to exit, nothing under way
)

// figures are the results of one work. Figures that were not measured are absent.
type figures map[metric]float64

// set stores a value with three decimals.
func (f figures) set(m metric, value float64) { f[m] = math.Round(value*1000) / 1000 }

// median returns, for each figure, the median of the runs that have it. For lost and
// duplicates, which must be 0, it returns the sum: a median would hide them.
func median(runs []figures) figures {
	values := map[metric][]float64{}
	for _, run := range runs {
		for m, v := range run {
			values[m] = append(values[m], v)
		}
	}
	all := figures{}
	for m, v := range values {
		if m == lost || m == duplicates {
			sum := 0.0
			for _, x := range v {
				sum += x
			}
			all.set(m, sum)
			continue
		}
		slices.Sort(v)
		all.set(m, (v[(len(v)-1)/2]+v[len(v)/2])/2)
	}
	return all
}

// setQuantiles stores the median, the 95th and the 99th percentile in milliseconds. It
// sorts d.
func (f figures) setQuantiles(d []time.Duration, p50, p95, p99 metric) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	for m, percent := range map[metric]int{p50: 50, p95: 95, p99: 99} {
		f.set(m, milliseconds(quantile(d, percent)))
	}
}

// quantile returns the smallest sorted value that is not below that many percent of the
// values (nearest rank).
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// per returns n ÷ d per second, 0 for a duration of 0.
func per(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
