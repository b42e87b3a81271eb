package webhook

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

func TestEveryStatusAndFaultHasAClass(t *testing.T) {
	t.Parallel()
	for status := 1; status <= 999; status++ {
		want := ClassOther
		switch status / 100 {
		case 2:
			want = ClassDelivered
		case 4:
			want = ClassHTTP4xx
		case 5:
			want = ClassHTTP5xx
		}
		o := retry.Classify(retry.Answer{Status: status}, retry.Default())
		if retry.NormalStatus(status) == 0 {
			want = ClassOther
		}
		require.Equal(t, want, ClassOf(&o), status)
	}
	classes := map[retry.Failure]OutcomeClass{
		retry.FailureDNSNotFound: ClassDNS, retry.FailureDNSTemporary: ClassDNS, retry.FailureTLS: ClassTLS,
		retry.FailureConnectRefused: ClassConnection, retry.FailureConnectionReset: ClassConnection, retry.FailureUnexpectedEOF: ClassConnection,
		retry.FailureProtocol: ClassConnection, retry.FailureHeadersIncomplete: ClassConnection,
		retry.FailureTimeoutDial: ClassTimeout, retry.FailureTimeoutTLS: ClassTimeout, retry.FailureTimeoutHeaders: ClassTimeout,
		retry.FailureTimeoutBody: ClassTimeout, retry.FailureTimeoutTotal: ClassTimeout,
		retry.FailureProxyConnectFailed: ClassConnection, retry.FailureProxyRefused: ClassOther,
		retry.FailureDenied: ClassOther, retry.FailureTokenRefused: ClassOther, retry.FailureTokenUnavailable: ClassOther, retry.FailureUnknown: ClassOther,
	}
	for _, fault := range retry.Failures() {
		want, known := classes[fault]
		require.True(t, known, fault)
		o := retry.Classify(retry.Answer{Failure: fault}, retry.Default())
		require.Equal(t, want, ClassOf(&o), fault)
	}
	names := map[string]bool{}
	for _, class := range OutcomeClasses() {
		names[class.String()] = true
	}
	require.Len(t, names, int(classCount))
}

// attemptOf is an attempt with a status, or 0 for a refused connection.
func attemptOf(number, status int, latency time.Duration) *Attempt {
	answer := retry.Answer{Status: status}
	if status == 0 {
		answer.Failure = retry.FailureConnectRefused
	}
	return &Attempt{Number: number, Latency: latency, Outcome: retry.Classify(answer, retry.Default())}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	var c Counts
	_, known := c.Quantile(0.5)
	require.False(t, known)
	c.AddAttempt(attemptOf(1, 200, 3*time.Millisecond))
	c.AddAttempt(attemptOf(1, 503, time.Minute))
	c.AddAttempt(attemptOf(2, 204, 5*time.Millisecond))
	c.AddAttempt(attemptOf(3, 0, time.Millisecond)) // nobody answered: it has no latency
	for _, state := range States() {
		c.AddEnd(state)
	}
	want := Counts{FirstAttempts: 2, FirstDelivered: 1, Ended: [4]int64{1, 1, 1, 1}}
	want.Attempts[ClassDelivered], want.Attempts[ClassHTTP5xx], want.Attempts[ClassConnection] = 2, 1, 1
	want.Latency[2], want.Latency[len(want.Latency)-1] = 2, 1
	require.Equal(t, want, c)
	require.EqualValues(t, 4, c.Total())
	require.Equal(t, []State{StateDelivered, StateDeadLettered, StateCancelled, StateDiscarded}, EndStates())
	require.Equal(t, MaxTimeout.Milliseconds(), LatencyBounds()[len(LatencyBounds())-1])
	require.True(t, slices.IsSorted(LatencyBounds()))
}

// A receiver that never answers has no latency: how long it was waited for is its timeout.
func TestTimeoutsHaveNoLatency(t *testing.T) {
	t.Parallel()
	var c Counts
	for _, failure := range retry.Failures() {
		c.AddAttempt(&Attempt{Number: 1, Latency: 3 * time.Second, Outcome: retry.Classify(retry.Answer{Failure: failure}, retry.Default())})
	}
	require.Positive(t, c.Attempts[ClassTimeout])
	require.Zero(t, c.Latency)
	_, known := c.Quantile(0.5)
	require.False(t, known)
}

// A quantile is in the bucket of the attempt that it is about, whatever the latencies are.
func TestQuantilesAreInTheRightBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(1, 30_000), 1, 200).Draw(t, "latencies in ms")
		var c Counts
		for _, ms := range all {
			c.AddAttempt(attemptOf(1, 200, time.Duration(ms)*time.Millisecond))
		}
		slices.Sort(all)
		last := int64(0)
		for _, percent := range []int{50, 95, 99, 100} {
			got, known := c.Quantile(float64(percent) / 100)
			rank := max((len(all)*percent+99)/100, 1)
			bucket := latencyBucket(time.Duration(all[rank-1]) * time.Millisecond)
			low := int64(0)
			if bucket > 0 {
				low = latencyBounds[bucket-1]
			}
			if !known || got <= low || got > latencyBounds[bucket] || got < last {
				t.Fatalf("p%d of %v is %d, not in (%d, %d]", percent, all, got, low, latencyBounds[bucket])
			}
			last = got
		}
	})
}

// Counting apart and adding up is counting together.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]Counts, 3)
		var whole, sum Counts
		for i := range rapid.IntRange(0, 50).Draw(t, "n") {
			part := rapid.IntRange(0, len(parts)-1).Draw(t, "part "+strconv.Itoa(i))
			a := attemptOf(rapid.IntRange(1, 3).Draw(t, "number"), rapid.SampledFrom([]int{0, 200, 302, 404, 500}).Draw(t, "status"),
				time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms"))*time.Millisecond)
			state := rapid.SampledFrom(States()).Draw(t, "state")
			for _, c := range []*Counts{&parts[part], &whole} {
				c.AddAttempt(a)
				c.AddEnd(state)
			}
		}
		for i := range parts {
			sum.Add(&parts[i])
		}
		if sum != whole {
			t.Fatalf("%+v is not %+v", sum, whole)
		}
	})
}

// The stored attempts count where a process knows of fewer.
func TestRecall(t *testing.T) {
	t.Parallel()
	stored := Counts{FirstAttempts: 6}
	stored.Attempts[ClassDelivered], stored.Attempts[ClassHTTP5xx] = 7, 3
	for name, c := range map[string]struct{ before, after Observation }{
		"a process that has just started": {Observation{}, Observation{Delivered: 7, Failed: 3, First: 6, Retries: 4}},
		"one that knows of fewer": {
			Observation{Delivered: 9, First: 9, SuccessStreak: 9},
			Observation{Delivered: 7, Failed: 3, First: 6, Retries: 4, SuccessStreak: 9},
		},
		"one that knows as many": {Observation{Delivered: 1, Failed: 9, First: 1, Retries: 9}, Observation{Delivered: 1, Failed: 9, First: 1, Retries: 9}},
		"one that knows of more": {Observation{Failed: 20, Retries: 20}, Observation{Failed: 20, Retries: 20}},
	} {
		got := c.before
		got.Recall(&stored)
		require.Equal(t, c.after, got, name)
	}
}

// What counting costs, without the lock and the map of a Recorder.
func BenchmarkAddAttempt(b *testing.B) {
	a, c := attemptOf(1, 200, 42*time.Millisecond), Counts{}
	for b.Loop() {
		c.AddAttempt(a)
		c.AddEnd(StateDelivered)
	}
}
