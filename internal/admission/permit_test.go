package admission

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// Every reason there is: what a circuit counts as failure, as success, or not at all.
func TestResultOfEveryReason(t *testing.T) {
	t.Parallel()
	const success, failure, nothing = "success", "failure", "nothing"
	want := map[retry.Reason]string{
		"dns_not_found": failure, "dns_temporary": nothing, "connect_refused": failure, "connection_reset": failure,
		"unexpected_eof": failure, "protocol_error": failure, "tls_invalid": failure, "timeout_dial": failure, "timeout_tls": failure,
		"timeout_headers": failure, "timeout_body": failure, "timeout_total": failure, "denied_address": nothing, "unknown": nothing,
		"token_refused": nothing, "token_unavailable": nothing,
	}
	verdict := func(r Result) string {
		err := r.verdict()
		switch {
		case err == nil:
			return success
		case unheard(err):
			return nothing
		}
		require.ErrorIs(t, err, errTrouble)
		return failure
	}
	seen := map[retry.Reason]bool{}
	for fault := retry.FaultDNSNotFound; fault <= retry.FaultUnknown; fault++ {
		outcome := retry.Classify(retry.Answer{Fault: fault}, retry.Default())
		r := ResultOf(outcome, 3, time.Second)
		late := slices.Contains([]retry.Reason{"timeout_tls", "timeout_headers", "timeout_body"}, outcome.Reason)
		require.Equal(t, Result{Latency: time.Second, Number: 3, Reason: outcome.Reason, BreakerFailure: outcome.Trouble, TimedOut: late}, r)
		require.Equal(t, want[outcome.Reason], verdict(r), outcome.Reason)
		seen[outcome.Reason] = true
	}
	require.Len(t, seen, len(want))
	for status := 1; status <= 1000; status++ {
		r := ResultOf(retry.Classify(retry.Answer{Status: status}, retry.Default()), 1, time.Second)
		expected := success
		if status < 200 || status >= 500 || status == 429 {
			expected = failure
		}
		require.Equal(t, expected, verdict(r), status)
		require.Equal(t, status >= 200 && status < 300, r.Delivered)
	}
	// What is not of an attempt that was made is not told to the gate at all.
	require.Equal(t, nothing, verdict(ResultOf(retry.Outcome{Reason: retry.ReasonPayloadCorrupt}, 1, 0)))
}

// Retry-After defers the endpoint with a 429 only; a hint paces it with any status.
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

// What the receiver asked for is kept, by everybody, for an hour at most; then they
// come one after another.
func TestReceiverAsks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result Result
		reason Reason
		until  time.Duration
	}{
		"retry after":  {Result{BreakerFailure: true, Answered: true, DeferFor: 40 * time.Second}, ReasonRetryAfter, 40 * time.Second},
		"hint":         {Result{Delivered: true, Answered: true, PaceFor: 40 * time.Second}, ReasonRateLimitHint, 40 * time.Second},
		"the longer":   {Result{BreakerFailure: true, DeferFor: 10 * time.Second, PaceFor: 40 * time.Second}, ReasonRateLimitHint, 40 * time.Second},
		"other longer": {Result{BreakerFailure: true, DeferFor: 40 * time.Second, PaceFor: 10 * time.Second}, ReasonRetryAfter, 40 * time.Second},
		"too long":     {Result{BreakerFailure: true, DeferFor: math.MaxInt64}, ReasonRetryAfter, time.Hour},
		"hint of ages": {Result{Delivered: true, PaceFor: math.MaxInt64}, ReasonRateLimitHint, time.Hour},
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
				require.Equal(t, c.reason, h.BlockedFor)
				require.Zero(t, ctl.Rate(req.Endpoint, req.Limits))
				require.True(t, ctl.Slow(req.Endpoint))

				one := <-waiting // who waited inside is turned away
				require.True(t, one.Deferred())
				require.Equal(t, c.reason, one.Reason)
				require.Equal(t, until, one.Until)
				before := until
				for range pioneers - 1 {
					next := ctl.Acquire(t.Context(), another(req))
					require.True(t, next.Deferred())
					require.GreaterOrEqual(t, next.Until.Sub(before), 100*time.Millisecond, "spread")
					before = next.Until
				}
				next := ctl.Acquire(t.Context(), another(req))
				require.Equal(t, c.until > horizon, next.Held())
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

// The rate after a Retry-After is a slope up to the one of before.
func TestSlopeAfterRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		results(t, ctl, req, 20*60, 50*time.Millisecond, delivered(time.Millisecond))
		admit(t, ctl, another(req)).Done(Result{BreakerFailure: true, Answered: true, DeferFor: 30 * time.Second})
		elapse(30 * time.Second)
		admit(t, ctl, another(req)).Done(Result{BreakerFailure: true, Answered: true, DeferFor: 30 * time.Second})
		require.InEpsilon(t, 20, ctl.Health(req.Endpoint).EarlierRate, 0.01, "of before the trouble")
		elapse(30 * time.Second)
		for _, want := range []float64{2, 2 + 28.0/3, 2 + 28*2.0/3, 30, 60, 120} {
			require.InEpsilon(t, want, ctl.Rate(req.Endpoint, req.Limits), 0.01)
			if want < 30 {
				elapse(10 * time.Second)
			} else {
				elapse(15 * time.Second)
			}
		}
		elapse(time.Hour)
		require.InEpsilon(t, 10_000, ctl.Rate(req.Endpoint, req.Limits), 0.01)
	})
}
