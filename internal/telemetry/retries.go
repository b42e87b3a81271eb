package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// retryMetrics count retries, and deliveries that were given up.
type retryMetrics struct {
	byNumber    *prometheus.CounterVec
	jitter      prometheus.Histogram
	deadLetters *prometheus.CounterVec
	discarded   prometheus.Counter
	replayed    prometheus.Counter
}

func newRetryMetrics(r registry) retryMetrics {
	return retryMetrics{
		byNumber: r.counters("everpost_attempts_by_number_total",
			"Attempts by their number in the run, 1 to 5, 6-10 or over-10, and by outcome.", "number", "decision"),
		jitter: r.histogram("everpost_backoff_jitter_ratio", "Computed delays before a retry, divided by the delay without jitter.",
			.1, .25, .5, .6, .7, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3),
		deadLetters: r.counters("everpost_dead_letters_total",
			"Deliveries that became dead letters, with an attempt or without, by reason.", "reason"),
		discarded: r.counter("everpost_dead_letters_discarded_total",
			"Dead letters that were discarded, by a command or after their retention."),
		replayed: r.counter("everpost_replayed_deliveries_total",
			"Deliveries that were sent again by a replay: first attempts of a run after the first."),
	}
}

// numberInRun is the number of an attempt in its run; its own number counts over all runs. The
// progress is that of another run if the delivery was replayed meanwhile.
func numberInRun(a *webhook.Attempt, p webhook.Progress) int {
	if p.Run == a.Run && p.RunAttempts > 0 {
		return p.RunAttempts
	}
	return a.Number
}

// The attempts of a run that have a label of their own. Those after them share two.
const (
	numberedAttempts = 5
	earlyAttempts    = 10
)

func numberLabel(number int) string {
	switch {
	case number <= numberedAttempts:
		return strconv.Itoa(max(number, 1))
	case number <= earlyAttempts:
		return "6-10"
	}
	return "over-10"
}

func (r *retryMetrics) attempted(a *webhook.Attempt, number int) {
	r.byNumber.WithLabelValues(numberLabel(number), a.Outcome.Decision.String()).Inc()
	if number == 1 && a.Run > 1 {
		r.replayed.Inc()
	}
	// A delay that the receiver asked for, or that was cut at the give-up time, has no jitter.
	if a.Nominal > 0 && a.DelaySource == string(retry.SourceBackoff) {
		r.jitter.Observe(a.Delay.Seconds() / a.Nominal.Seconds())
	}
}

// ended counts a delivery that has ended.
func (r *retryMetrics) ended(p webhook.Progress) {
	switch p.State {
	case webhook.StateDeadLettered:
		r.deadLetters.WithLabelValues(p.Reason).Inc()
	case webhook.StateDiscarded:
		r.discarded.Inc()
	case webhook.StatePending, webhook.StateRetrying, webhook.StateHeld, webhook.StateDelivered, webhook.StateCancelled:
	}
}

// Ended counts a delivery that has ended without an attempt.
func (m *Metrics) Ended(p webhook.Progress) { m.retrying.ended(p) }
