package admission

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// For every reason: whether the breaker counts it as a failure, as a success, or not at all.
func TestResultOfEveryReason(t *testing.T) {
	t.Parallel()
	const success, failure, nothing = "success", "failure", "nothing"
	want := map[retry.Reason]string{
		"dns_not_found": failure, "dns_temporary": nothing, "connect_refused": failure, "connection_reset": failure,
		"unexpected_eof": failure, "protocol_error": failure, "headers_incomplete": failure,
		"tls_invalid": failure, "timeout_dial": failure, "timeout_tls": failure,
		"timeout_headers": failure, "timeout_body": failure, "timeout_total": failure, "denied_address": nothing, "unknown": nothing,
		"token_refused": nothing, "token_unavailable": nothing, "proxy_refused": failure, "proxy_connect_failed": failure,
	}
	signals := func(r Result) string {
		return map[signal]string{signalSuccess: success, signalFailure: failure, signalNone: nothing}[r.signal()]
	}
	seen := map[retry.Reason]bool{}
	for _, fault := range retry.Failures() {
		outcome := retry.Classify(retry.Answer{Failure: fault}, retry.Default())
		r := ResultOf(outcome, 3, time.Second)
		late := slices.Contains([]retry.Reason{"timeout_tls", "timeout_headers", "timeout_body"}, outcome.Reason)
		require.Equal(t, Result{Latency: time.Second, Number: 3, Reason: outcome.Reason, BreakerFailure: outcome.BreakerFailure, TimedOut: late}, r)
		require.Equal(t, want[outcome.Reason], signals(r), outcome.Reason)
		seen[outcome.Reason] = true
	}
	require.Len(t, seen, len(want))
	for status := 1; status <= 1000; status++ {
		r := ResultOf(retry.Classify(retry.Answer{Status: status}, retry.Default()), 1, time.Second)
		expected := success
		if status < 200 || status >= 500 || status == 429 {
			expected = failure
		}
		require.Equal(t, expected, signals(r), status)
		require.Equal(t, status >= 200 && status < 300, r.Delivered)
	}
	// A payload that could not be sent says nothing of the receiver.
	require.Equal(t, nothing, signals(ResultOf(retry.Outcome{Reason: retry.ReasonPayloadCorrupt}, 1, 0)))
}

// Retry-After defers the endpoint with a 429 only; a rate-limit hint paces it with any status.
func TestResultOfHints(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]Result{
		200: {PaceFor: 20 * time.Second},
		503: {PaceFor: 20 * time.Second},
		404: {PaceFor: 20 * time.Second},
		429: {PaceFor: 20 * time.Second, DeferFor: 10 * time.Second},
	} {
		r := ResultOf(retry.Classify(retry.Answer{
			Status: status, RetryAfter: "10", RateLimitRemaining: "0", RateLimitReset: "20",
		}, retry.Default()), 1, time.Second)
		require.Equal(t, want, Result{PaceFor: r.PaceFor, DeferFor: r.DeferFor}, status)
	}
}

// What the receiver asked for applies to all deliveries, for an hour at most; then they are admitted one after
// another.
func TestReceiverBlocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result Result
		reason string
		until  time.Duration
	}{
		"retry after":  {Result{BreakerFailure: true, Answered: true, DeferFor: 40 * time.Second}, webhook.ReasonRetryAfter, 40 * time.Second},
		"hint":         {Result{Delivered: true, Answered: true, PaceFor: 40 * time.Second}, webhook.ReasonRateLimitHint, 40 * time.Second},
		"the longer":   {Result{BreakerFailure: true, DeferFor: 10 * time.Second, PaceFor: 40 * time.Second}, webhook.ReasonRateLimitHint, 40 * time.Second},
		"other longer": {Result{BreakerFailure: true, DeferFor: 40 * time.Second, PaceFor: 10 * time.Second}, webhook.ReasonRetryAfter, 40 * time.Second},
		"too long":     {Result{BreakerFailure: true, DeferFor: math.MaxInt64}, webhook.ReasonRetryAfter, time.Hour},
		"hint of ages": {Result{Delivered: true, PaceFor: math.MaxInt64}, webhook.ReasonRateLimitHint, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), guarded()
				req.Limits.Rate = 10
				results(t, ctl, req, 30, 200*time.Millisecond, delivered(time.Millisecond))
				early := another(req)
				permit := admit(t, ctl, another(req))
				waiting := make(chan Decision)
				go func() {
					decision := ctl.Acquire(t.Context(), early)
					waiting <- decision
				}()
				synctest.Wait()
				begun := time.Now()
				until := begun.Add(c.until)
				permit.Done(c.result)
				h := ctl.Health(req.Endpoint)
				require.Equal(t, until, h.BlockedUntil)
				require.Equal(t, c.reason, h.BlockReason)
				require.Zero(t, rateOf(ctl, req.Endpoint, req.Limits))
				require.True(t, ctl.LikelySlow(req.Endpoint))

				one := <-waiting // it has to ask again
				require.True(t, one.Deferred())
				require.Equal(t, c.reason, one.Reason)
				require.Equal(t, until, one.Until)
				before := until
				for range alwaysReserved - 1 {
					next := ctl.Acquire(t.Context(), another(req))
					require.True(t, next.Deferred())
					require.GreaterOrEqual(t, next.Until.Sub(before), 100*time.Millisecond, "spread")
					before = next.Until
				}
				next := ctl.Acquire(t.Context(), another(req))
				require.Equal(t, c.until > horizonReleased, next.Held())
				elapse(time.Until(until) - 1)
				next = ctl.Acquire(t.Context(), another(req))
				require.Nil(t, next.Permit)
				elapse(1)
				admit(t, ctl, early).Done(delivered(time.Millisecond))
				require.Zero(t, ctl.Health(req.Endpoint).BlockedUntil)
			})
		})
	}
}

// The rate after a Retry-After ramps up to the earlier rate.
func TestRampUpAfterRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		results(t, ctl, req, 20*60, 50*time.Millisecond, delivered(time.Millisecond))
		admit(t, ctl, another(req)).Done(Result{BreakerFailure: true, Answered: true, DeferFor: 30 * time.Second})
		elapse(30 * time.Second)
		admit(t, ctl, another(req)).Done(Result{BreakerFailure: true, Answered: true, DeferFor: 30 * time.Second})
		require.InEpsilon(t, 20, queueOf(ctl, req.Endpoint).earlier, 0.01, "of before the outage")
		elapse(30 * time.Second)
		for _, want := range []float64{2, 2 + 28.0/3, 2 + 28*2.0/3, 30, 60, 120} {
			require.InEpsilon(t, want, rateOf(ctl, req.Endpoint, req.Limits), 0.01)
			if want < 30 {
				elapse(10 * time.Second)
			} else {
				elapse(15 * time.Second)
			}
		}
		elapse(time.Hour)
		require.InEpsilon(t, 10_000, rateOf(ctl, req.Endpoint, req.Limits), 0.01)
	})
}

// A request that is made again with its permit counts for the rate, and takes no other slot.
func TestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits = Limits{MaxInFlight: 1, Rate: 1}
		p := ctl.TryAcquire(req)
		require.NotNil(t, p)
		require.True(t, p.Begin(t.Context()))
		require.False(t, p.Again(t.Context()), "the rate allows one in a second")
		<-time.After(time.Second)
		require.True(t, p.Again(t.Context()))
		require.Equal(t, 1, ctl.Health(req.Endpoint).InFlight)
		p.Done(delivered(time.Millisecond))
		require.Zero(t, ctl.Health(req.Endpoint).InFlight)
		require.Nil(t, ctl.TryAcquire(req), "it was charged")
		<-time.After(time.Second)
		require.False(t, p.Again(t.Context()), "it has ended")
		require.NotNil(t, ctl.TryAcquire(req))
	})
}

// While the circuit is open or the receiver has asked for a pause, only the probe is made again.
func TestAgainWhileBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits = Limits{MaxInFlight: 100, Breaker: webhook.CircuitBreaker{Enabled: true, MinRequests: 2, FailureRatio: 0.5}}
		first, second := ctl.Acquire(t.Context(), req).Permit, ctl.Acquire(t.Context(), req).Permit
		third := ctl.Acquire(t.Context(), req).Permit
		require.True(t, third.Again(t.Context()))
		first.Done(refused(time.Millisecond))
		second.Done(refused(time.Millisecond))
		require.Equal(t, webhook.CircuitOpen, ctl.Health(req.Endpoint).Circuit)
		require.False(t, third.Again(t.Context()))
		third.Cancel()
		<-time.After(time.Minute)
		probe := ctl.Acquire(t.Context(), req).Permit
		require.NotNil(t, probe)
		<-time.After(time.Minute) // the rate after an outage is low
		require.True(t, probe.Again(t.Context()))
		probe.Done(delivered(time.Millisecond))
		require.Equal(t, webhook.CircuitClosed, ctl.Health(req.Endpoint).Circuit)
	})
}

// A permit of another process's controller is not used again; one of a controller of this process is, through whatever wraps it.
func TestAgainElsewhere(t *testing.T) {
	t.Parallel()
	ctl, req := New(Config{}), newRequest()
	soon := time.Now().Add(time.Minute)
	require.False(t, NewPermit(nil, time.Second, soon, func(*Result) {}).Again(t.Context()))
	counted := ctl.TryAcquire(req)
	require.True(t, NewPermit(counted, time.Second, soon, func(*Result) {}).Again(t.Context()))
	require.False(t, NewPermit(counted, time.Second, time.Now().Add(-time.Second), func(*Result) {}).Again(t.Context()))
	counted.Cancel()
}
