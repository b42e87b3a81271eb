package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// mechanisms are one of each kind of thing that can make a delivery wait, in every combination.
type mechanisms struct {
	reason   string // of the delivery's wait
	held     bool
	endpoint webhook.EndpointState
	circuit  webhook.CircuitState
	paused   bool // the receiver has asked for a pause
	receiver string
	attempts int
}

const (
	receiverWell     = "well"
	receiverFails    = "fails"
	receiverRecovers = "recovers"
)

func everyMechanism(visit func(mechanisms)) {
	deferred := []string{
		webhook.ReasonInFlight, webhook.ReasonHost, webhook.ReasonRate, webhook.ReasonCircuitOpen, webhook.ReasonCapacity, webhook.ReasonNoOwner,
		webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint,
	}
	held := []string{webhook.ReasonBacklog, webhook.ReasonPaused, webhook.ReasonDisabled, webhook.ReasonInternal}
	for _, reason := range slices.Concat(deferred, held) {
		for _, endpoint := range []webhook.EndpointState{webhook.EndpointActive, webhook.EndpointPaused, webhook.EndpointDisabled} {
			for _, circuit := range []webhook.CircuitState{webhook.CircuitClosed, webhook.CircuitHalfOpen, webhook.CircuitOpen} {
				for _, receiver := range []string{receiverWell, receiverFails, receiverRecovers} {
					for n := range 4 {
						visit(mechanisms{reason, slices.Contains(held, reason), endpoint, circuit, n&1 != 0, receiver, n / 2})
					}
				}
			}
		}
	}
}

func (m *mechanisms) situation() Situation {
	e := shop()
	if e.State = m.endpoint; m.endpoint != webhook.EndpointActive {
		e.StateReason = "too many requests failed"
	}
	d := retrying("http_503")
	if d.Reason = m.reason; m.attempts == 0 {
		d.State, d.Attempts, d.RunAttempts, d.LastOutcome = webhook.StatePending, 0, 0, nil
	}
	if m.held {
		d.State, d.DueAt = webhook.StateHeld, time.Time{}
	}
	if m.reason == webhook.ReasonInternal {
		d.LastError = "the endpoint's secret cannot be opened"
	}
	o := webhook.Observation{Circuit: m.circuit, Rate: 2, Delivered: 900, Failed: 10}
	if m.circuit != webhook.CircuitClosed {
		o.Since, o.Why, o.NextProbe = noon().Add(-time.Minute), "14 of 20 requests failed, the last with http_503", noon().Add(9*time.Second)
		o.LastFailure = "http_503"
	}
	if m.paused {
		o.BlockedUntil, o.BlockReason = noon().Add(time.Minute), webhook.ReasonRetryAfter
	}
	switch m.receiver {
	case receiverFails:
		o.FailureStreak, o.LastFailure = 12, "http_503"
	case receiverRecovers:
		o.Recovering = true
	}
	return Situation{Now: noon(), Endpoint: &e, Delivery: d, Observed: &o, Ahead: &Ahead{N: 212}}
}

// deepest is the code of the deepest cause.
func (m *mechanisms) deepest() Code {
	ofItself := map[string]Code{
		webhook.ReasonInFlight: WaitsInFlight, webhook.ReasonHost: WaitsHost, webhook.ReasonRate: WaitsRate, webhook.ReasonCircuitOpen: WaitsCircuit,
		webhook.ReasonCapacity: WaitsCapacity, webhook.ReasonNoOwner: WaitsOwner, webhook.ReasonRetryAfter: WaitsReceiver,
		webhook.ReasonRateLimitHint: WaitsReceiver, webhook.ReasonBacklog: HeldBacklog, webhook.ReasonPaused: Releasing, webhook.ReasonDisabled: Releasing,
	}[m.reason]
	switch {
	case m.endpoint == webhook.EndpointPaused:
		return HeldPaused
	case m.endpoint == webhook.EndpointDisabled:
		return HeldDisabled
	case m.reason == webhook.ReasonInternal:
		return InternalFault
	case m.circuit != webhook.CircuitClosed:
		return WaitsCircuit
	case m.paused:
		return WaitsReceiver
	case m.reason == webhook.ReasonNoOwner: // a fault of ours, which is said as ours
		return WaitsOwner
	case m.receiver == receiverFails:
		return WaitsFailing
	case m.receiver == receiverRecovers:
		return WaitsRecovery
	}
	return ofItself
}

// Whatever the mechanism is called that makes a delivery wait, the deepest cause is said, with the receiver's last failure;
// and the limits of a receiver that is not well are never to be raised.
func TestTheDeepestCauseIsSaid(t *testing.T) {
	t.Parallel()
	n := 0
	everyMechanism(func(m mechanisms) {
		n++
		got := Delivery(m.situation())
		require.Equal(t, m.deepest(), got.Code, "%+v: %s", m, got.Summary)
		requireSentences(t, got)
		requireOneWord(t, got)
		all := got.Summary + " " + got.Cause + " " + got.Remedy
		well := m.circuit == webhook.CircuitClosed && m.receiver == receiverWell && !m.paused && m.endpoint == webhook.EndpointActive
		if !well {
			require.NotRegexp(t, `max_in_flight|rate_limit_per_second|takes? soon|faster than`, all, "%+v", m)
		}
		if got.Code == WaitsCircuit && m.circuit != webhook.CircuitClosed || got.Code == WaitsFailing {
			require.Contains(t, got.Summary, "503", "%+v", m)
			require.Contains(t, got.Cause, "The receiver at shop.example answered 503 (Service Unavailable).", "%+v", m)
			require.Contains(t, got.Remedy, "it is overloaded or in maintenance", "%+v", m)
		}
	})
	require.Equal(t, 12*3*3*3*4, n)
}

// The same of an endpoint.
func TestTheDeepestConditionIsSaid(t *testing.T) {
	t.Parallel()
	everyMechanism(func(m mechanisms) {
		s := m.situation()
		h := webhook.Health{Endpoint: *s.Endpoint, Observed: *s.Observed, Known: true}
		if !m.held {
			h.Observed.DeferReason = m.reason
		}
		got := Endpoint(&h, noon())
		requireSentences(t, got)
		requireOneWord(t, got)
		switch {
		case m.endpoint == webhook.EndpointPaused:
			require.Equal(t, EndpointPause, got.Code)
		case m.endpoint == webhook.EndpointDisabled:
			require.Equal(t, EndpointOff, got.Code)
		case m.circuit != webhook.CircuitClosed:
			require.Contains(t, []Code{EndpointOpen, EndpointProbe}, got.Code)
			require.Contains(t, got.Summary, "503")
		case m.paused:
			require.Equal(t, EndpointRests, got.Code)
		case m.receiver == receiverFails:
			require.Equal(t, EndpointFails, got.Code, "%+v", m)
			require.Contains(t, got.Summary, "the last with 503 Service Unavailable")
		case m.receiver == receiverRecovers:
			require.Equal(t, EndpointRises, got.Code)
		}
		if m.circuit != webhook.CircuitClosed || m.receiver != receiverWell || m.paused {
			require.NotRegexp(t, `max_in_flight|rate_limit_per_second`, got.Remedy, "%+v", m)
		}
	})
}

// A delivery that waits for its own next attempt says that the circuit has opened meanwhile.
func TestAWaitBeforeAnOpenCircuit(t *testing.T) {
	t.Parallel()
	m := mechanisms{endpoint: webhook.EndpointActive, circuit: webhook.CircuitOpen, attempts: 1}
	got := Delivery(m.situation())
	require.Equal(t, RetryResponse, got.Code)
	require.Contains(t, got.Cause, "The circuit of the endpoint has been open since 12:03 UTC after 14 of 20 requests failed, "+
		"the last with 503 Service Unavailable")
}

// Where nothing is known of the receiver, and where it is read later, no limit is to be raised.
func TestNoLimitIsRaisedOfAReceiverThatIsNotKnown(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{webhook.ReasonInFlight, webhook.ReasonRate, webhook.ReasonBacklog} {
		m := mechanisms{reason: reason, held: reason == webhook.ReasonBacklog, endpoint: webhook.EndpointActive, circuit: webhook.CircuitClosed}
		s := m.situation()
		s.Now, s.Observed, s.Ahead = time.Time{}, nil, nil
		require.Empty(t, Delivery(s).Remedy, reason)
	}
}

// A failure among successes is none of the endpoint.
func TestFailing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    webhook.Observation
		want bool
	}{
		"nothing sent":          {webhook.Observation{}, false},
		"all delivered":         {webhook.Observation{Delivered: 5}, false},
		"the only one failed":   {webhook.Observation{Failed: 1, FailureStreak: 1}, true},
		"one of many":           {webhook.Observation{Delivered: 900, Failed: 1, FailureStreak: 1}, false},
		"down since just now":   {webhook.Observation{Delivered: 900, Failed: 3, FailureStreak: 3}, true},
		"well since just now":   {webhook.Observation{Delivered: 1, Failed: 900}, false},
		"every second one":      {webhook.Observation{Delivered: 10, Failed: 10, FailureStreak: 1}, true},
		"a delivery in between": {webhook.Observation{Delivered: 10, Failed: 10, SuccessStreak: 1}, false},
	} {
		require.Equal(t, c.want, c.o.Failing(), name)
	}
}

// Nor of one that is slow.
func TestNoLimitIsRaisedOfASlowReceiver(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{webhook.ReasonInFlight, webhook.ReasonRate, webhook.ReasonBacklog} {
		m := mechanisms{reason: reason, held: reason == webhook.ReasonBacklog, endpoint: webhook.EndpointActive, circuit: webhook.CircuitClosed}
		s := m.situation()
		s.Observed.Latency = 12 * time.Second
		require.Equal(t, "Have the receiver answer at once and work afterwards: answers take 12 s.", Delivery(s).Remedy, reason)
	}
}
