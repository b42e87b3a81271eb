package gate

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
		require.Equal(t, Result{Latency: time.Second, Number: 3, Reason: outcome.Reason, Trouble: outcome.Trouble, TimedOut: late}, r)
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
		"retry after":  {Result{Trouble: true, Answered: true, DeferFor: 40 * time.Second}, ReasonRetryAfter, 40 * time.Second},
		"hint":         {Result{Delivered: true, Answered: true, PaceFor: 40 * time.Second}, ReasonRateLimitHint, 40 * time.Second},
		"the longer":   {Result{Trouble: true, DeferFor: 10 * time.Second, PaceFor: 40 * time.Second}, ReasonRateLimitHint, 40 * time.Second},
		"other longer": {Result{Trouble: true, DeferFor: 40 * time.Second, PaceFor: 10 * time.Second}, ReasonRetryAfter, 40 * time.Second},
		"too long":     {Result{Trouble: true, DeferFor: math.MaxInt64}, ReasonRetryAfter, time.Hour},
		"hint of ages": {Result{Delivered: true, PaceFor: math.MaxInt64}, ReasonRateLimitHint, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, en := New(Config{}), guarded()
				en.Limits.Rate = 10
				results(t, g, en, 30, 200*time.Millisecond, delivered(time.Millisecond))
				early := another(en)
				pass := admit(t, g, another(en))
				waiting := make(chan Admission)
				go func() {
					admission, _ := g.Enter(t.Context(), early)
					waiting <- admission
				}()
				synctest.Wait()
				begun := time.Now()
				until := begun.Add(c.until)
				pass.Done(c.result)
				h := g.Health(en.Endpoint)
				require.Equal(t, until, h.BarredUntil)
				require.Equal(t, c.reason, h.BarredFor)
				require.Zero(t, g.Rate(en.Endpoint, en.Limits))
				require.True(t, g.Slow(en.Endpoint))

				one := <-waiting // who waited inside is turned away
				require.Equal(t, Deferred, one.Verdict)
				require.Equal(t, c.reason, one.Reason)
				require.Equal(t, until, one.Until)
				before := until
				for range pioneers - 1 {
					next, _ := g.Enter(t.Context(), another(en))
					require.Equal(t, Deferred, next.Verdict)
					require.GreaterOrEqual(t, next.Until.Sub(before), 100*time.Millisecond, "spread")
					before = next.Until
				}
				next, _ := g.Enter(t.Context(), another(en))
				require.Equal(t, c.until > horizon, next.Verdict == Held)
				elapse(time.Until(until) - 1)
				next, _ = g.Enter(t.Context(), another(en))
				require.NotEqual(t, Admitted, next.Verdict)
				elapse(1)
				admit(t, g, early).Done(delivered(time.Millisecond))
				require.Zero(t, g.Health(en.Endpoint).BarredUntil)
			})
		})
	}
}

// The rate after a Retry-After is a slope up to the one of before.
func TestSlopeAfterRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, en := New(Config{}), entry()
		results(t, g, en, 20*60, 50*time.Millisecond, delivered(time.Millisecond))
		admit(t, g, another(en)).Done(Result{Trouble: true, Answered: true, DeferFor: 30 * time.Second})
		elapse(30 * time.Second)
		admit(t, g, another(en)).Done(Result{Trouble: true, Answered: true, DeferFor: 30 * time.Second})
		require.InEpsilon(t, 20, g.Health(en.Endpoint).EarlierRate, 0.01, "of before the trouble")
		elapse(30 * time.Second)
		for _, want := range []float64{2, 2 + 28.0/3, 2 + 28*2.0/3, 30, 60, 120} {
			require.InEpsilon(t, want, g.Rate(en.Endpoint, en.Limits), 0.01)
			if want < 30 {
				elapse(10 * time.Second)
			} else {
				elapse(15 * time.Second)
			}
		}
		elapse(time.Hour)
		require.InEpsilon(t, 10_000, g.Rate(en.Endpoint, en.Limits), 0.01)
	})
}
