package webhook

import (
	"fmt"
	"math"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

const (
	// MinutesKept is how long statistics of single minutes can be read.
	MinutesKept = 48 * time.Hour
	// HoursKept is how long statistics of hours can be read.
	HoursKept = 90 * 24 * time.Hour
	// HistorySpan is the time before now that the health of an endpoint looks at.
	HistorySpan = 15 * time.Minute
)

// OutcomeClass groups the outcomes of attempts for statistics.
type OutcomeClass uint8

// The classes of outcomes.
const (
	ClassDelivered  OutcomeClass = iota
	ClassHTTP4xx                 // any status from 400 to 499
	ClassHTTP5xx                 // any status from 500 to 599
	ClassTimeout                 // while connecting, or while waiting for the response
	ClassConnection              // refused, reset, ended early, or no HTTP
	ClassDNS
	ClassTLS
	ClassOther // another status, an address that is not allowed, no token, or an unknown cause
	classCount
)

// OutcomeClasses returns all classes in order.
func OutcomeClasses() []OutcomeClass {
	all := make([]OutcomeClass, 0, classCount)
	for c := range classCount {
		all = append(all, c)
	}
	return all
}

// String is the class's name in the API and in the store.
func (c OutcomeClass) String() string {
	switch c {
	case ClassDelivered:
		return "delivered"
	case ClassHTTP4xx:
		return "http_4xx"
	case ClassHTTP5xx:
		return "http_5xx"
	case ClassTimeout:
		return "timeout"
	case ClassConnection:
		return "connection"
	case ClassDNS:
		return "dns"
	case ClassTLS:
		return "tls"
	case ClassOther:
		return "other"
	case classCount:
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// ClassOf is the class of an outcome. If a status was read, it decides.
func ClassOf(o *retry.Outcome) OutcomeClass {
	switch {
	case o.Decision == retry.Delivered:
		return ClassDelivered
	case o.Status >= 400 && o.Status <= 499:
		return ClassHTTP4xx
	case o.Status >= 500 && o.Status <= 599:
		return ClassHTTP5xx
	case o.Status != 0:
		return ClassOther
	}
	switch o.Reason { //nolint:exhaustive // all others are ClassOther
	case retry.ReasonTimeoutDial, retry.ReasonTimeoutTLS, retry.ReasonTimeoutHeaders, retry.ReasonTimeoutBody, retry.ReasonTimeoutTotal:
		return ClassTimeout
	case retry.ReasonConnectRefused, retry.ReasonConnectionReset, retry.ReasonUnexpectedEOF, retry.ReasonProtocolError,
		retry.ReasonHeadersIncomplete, retry.ReasonConnectionReused,
		retry.ReasonProxyConnectFailed:
		return ClassConnection
	case retry.ReasonDNSNotFound, retry.ReasonDNSTemporary:
		return ClassDNS
	case retry.ReasonTLSInvalid:
		return ClassTLS
	default:
		return ClassOther
	}
}

// latencyBounds are the upper bounds of the latency buckets in milliseconds. The last one is
// MaxTimeout; what took longer counts there. Between 20 ms and 2.5 s, where most receivers are, a
// bound is at most twice the one before.
//
//nolint:gochecknoglobals // a table that Go cannot write as a constant
var latencyBounds = [...]int64{1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 250, 350, 500, 750, 1000, 1500, 2500, 5000, 10_000, 15_000, 30_000}

// LatencyBounds returns the upper bounds of the latency buckets, in milliseconds.
func LatencyBounds() []int64 { return latencyBounds[:] }

// endStates are the states in which a delivery ends, in the order of Counts.Ended.
//
//nolint:gochecknoglobals // a table that Go cannot write as a constant
var endStates = [...]State{StateDelivered, StateDeadLettered, StateCancelled, StateDiscarded}

// EndStates returns the states in which a delivery ends, in the order of Counts.Ended.
func EndStates() []State { return endStates[:] }

// Counts are the statistics of a span of time. They add up.
type Counts struct {
	Attempts       [classCount]int64 // by OutcomeClass
	FirstAttempts  int64             // attempts with the number 1; all others are retries, or of a replay
	FirstDelivered int64             // of these, those that delivered
	Ended          [len(endStates)]int64
	// Latency has the attempts that were answered, by how long they took. How long nobody answered is no latency: it says how long the timeout is.
	Latency [len(latencyBounds)]int64
	// FilterMatched and Filtered are events of a type that the endpoint subscribes to, which its filter matched, and kept out.
	FilterMatched, Filtered int64
}

// AddAttempt counts an attempt.
func (c *Counts) AddAttempt(a *Attempt) {
	class := ClassOf(&a.Outcome)
	c.Attempts[class]++
	if a.Number == 1 {
		c.FirstAttempts++
		if class == ClassDelivered {
			c.FirstDelivered++
		}
	}
	if class == ClassDelivered || a.Outcome.Status != 0 {
		c.Latency[latencyBucket(a.Latency)]++
	}
}

// latencyBucket is the index of the bucket of a latency.
func latencyBucket(d time.Duration) int {
	for i, bound := range latencyBounds {
		if d <= time.Duration(bound)*time.Millisecond {
			return i
		}
	}
	return len(latencyBounds) - 1
}

// AddEnd counts the end of a delivery. An open state is not counted.
func (c *Counts) AddEnd(s State) {
	for i, end := range endStates {
		if s == end {
			c.Ended[i]++
		}
	}
}

// AddVerdict counts what the endpoint's filter said of an event.
func (c *Counts) AddVerdict(matched bool) {
	if matched {
		c.FilterMatched++
		return
	}
	c.Filtered++
}

// Add adds other counts.
func (c *Counts) Add(other *Counts) {
	for i, n := range other.Attempts {
		c.Attempts[i] += n
	}
	c.FirstAttempts += other.FirstAttempts
	c.FirstDelivered += other.FirstDelivered
	for i, n := range other.Ended {
		c.Ended[i] += n
	}
	for i, n := range other.Latency {
		c.Latency[i] += n
	}
	c.FilterMatched += other.FilterMatched
	c.Filtered += other.Filtered
}

// Total is the number of attempts.
func (c *Counts) Total() (n int64) {
	for _, of := range c.Attempts {
		n += of
	}
	return n
}

// Quantile estimates the latency in milliseconds that the share q of the attempts did not exceed,
// by linear interpolation within its bucket; false without attempts that have a latency. It is
// rounded up, so that it is never 0.
func (c *Counts) Quantile(q float64) (ms int64, known bool) {
	var total int64
	for _, n := range c.Latency {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := q * float64(total)
	var below int64
	for i, n := range c.Latency {
		if n == 0 || float64(below+n) < rank {
			below += n
			continue
		}
		low := int64(0)
		if i > 0 {
			low = latencyBounds[i-1]
		}
		within := (rank - float64(below)) / float64(n)
		return low + int64(max(math.Ceil(within*float64(latencyBounds[i]-low)), 1)), true
	}
	return latencyBounds[len(latencyBounds)-1], true // rounding of rank
}

// StatisticsRow has the counts of an endpoint in a minute. Without an endpoint they are of all
// endpoints of the tenant, without a tenant of the whole installation.
type StatisticsRow struct {
	TenantID   string
	EndpointID EndpointID
	Minute     time.Time
	Counts     Counts
}

// StatisticsFlush is what a process writes at once. Written again with the same number, it counts
// once.
type StatisticsFlush struct {
	Writer [16]byte // of the process; unique, also among its earlier lives
	Seq    int64    // increases by one with each flush of the writer
	Rows   []StatisticsRow
}

// StatisticsQuery asks for the points that begin in [Since, Until).
type StatisticsQuery struct {
	TenantID     string     // "" for the whole installation
	EndpointID   EndpointID // zero for all endpoints of the tenant
	Since, Until time.Time
	Step         time.Duration // a minute or an hour
}

// StatisticsPoint has the counts of a step.
type StatisticsPoint struct {
	At time.Time // its beginning

	Counts
}
