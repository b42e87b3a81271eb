package explain

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func noon() time.Time { return time.Date(2026, 11, 24, 12, 4, 8, 0, time.UTC) }

// shop is an endpoint with the default policy.
func shop() webhook.Endpoint {
	return webhook.Endpoint{
		URL: "https://user:s3cr3t@shop.example/hook?token=s3cr3t", EventTypes: []string{"*"}, Timeout: 15 * time.Second, MaxInFlight: 10, RateLimit: 5,
	}
}

// retrying is a delivery after three attempts with an outcome.
func retrying(reason string) webhook.Delivery {
	status, _ := retry.Reason(reason).Status()
	return webhook.Delivery{
		Progress: webhook.Progress{
			Run: 1, State: webhook.StateRetrying, Attempts: 3, RunAttempts: 3, DueAt: noon().Add(62 * time.Second),
			GiveUpAt: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC),
		},
		LastOutcome: &webhook.LastOutcome{
			Decision: retry.Retry, Reason: reason, Status: status, Latency: 41 * time.Millisecond, At: noon().Add(-24 * time.Second),
		},
		CreatedAt: noon().Add(-time.Hour),
	}
}

// deliveryCase is a situation and what is said of it.
type deliveryCase struct {
	name    string
	change  func(*Situation)
	code    Code
	summary string
	cause   string // part of it
}

func deliveryCases() []deliveryCase {
	pending := func(s *Situation) {
		s.Delivery = webhook.Delivery{
			Progress: webhook.Progress{Run: 1, State: webhook.StatePending, GiveUpAt: s.Delivery.GiveUpAt}, CreatedAt: noon().Add(-2 * time.Second),
		}
	}
	last := func(reason string, more ...func(*Situation)) func(*Situation) {
		return func(s *Situation) {
			s.Delivery = retrying(reason)
			for _, change := range more {
				change(s)
			}
		}
	}
	deferred := func(reason string, more ...func(*Situation)) func(*Situation) {
		return func(s *Situation) {
			pending(s)
			s.Delivery.Reason, s.Delivery.DueAt = reason, noon().Add(21*time.Second)
			for _, change := range more {
				change(s)
			}
		}
	}
	held := func(reason string, more ...func(*Situation)) func(*Situation) {
		return func(s *Situation) {
			pending(s)
			s.Delivery.State, s.Delivery.Reason = webhook.StateHeld, reason
			for _, change := range more {
				change(s)
			}
		}
	}
	ended := func(state webhook.State, reason, outcome string, more ...func(*Situation)) func(*Situation) {
		return func(s *Situation) {
			s.Delivery = retrying(outcome)
			d := &s.Delivery
			d.State, d.Reason, d.DueAt, d.CompletedAt = state, reason, time.Time{}, noon().Add(-24*time.Second)
			s.Kept = 30 * day
			for _, change := range more {
				change(s)
			}
		}
	}
	observed := func(o webhook.Observation) func(*Situation) { return func(s *Situation) { s.Observed = &o } }
	state := func(to webhook.EndpointState, reason string) func(*Situation) {
		return func(s *Situation) { s.Endpoint.State, s.Endpoint.StateReason = to, reason }
	}
	const kept = "kept as a dead letter until 24 Dec 12:03 UTC."
	return []deliveryCase{
		{
			"accepted", pending, Starting,
			"Accepted at 12:04:06 UTC, 2 s ago; attempt 1 is about to be made, or under way.", "",
		},
		{
			"accepted long ago", func(s *Situation) { pending(s); s.Delivery.CreatedAt = noon().Add(-5 * time.Minute) }, Starting,
			"Accepted at 11:59:08 UTC, 5 min ago; attempt 1 is about to be made, or under way.", "It normally begins within milliseconds.",
		},
		{
			"replayed", func(s *Situation) { pending(s); s.Delivery.Run, s.Delivery.Attempts = 2, 3 }, Starting,
			"Accepted at 12:04:06 UTC, 2 s ago; sent again, run 2; attempt 4 is about to be made, or under way.", "",
		},
		{
			"Temporal is away", func(s *Situation) { pending(s); s.EngineAway = noon().Add(-90 * time.Second) }, EngineAway,
			"Attempt 1 waits because Temporal has been unreachable since 12:02:38 UTC, 90 s ago; it is made when Temporal is back.", "safely stored",
		},
		{
			"scheduled", func(s *Situation) { pending(s); s.Delivery.DueAt = noon().Add(49 * time.Hour) }, Scheduled,
			"Scheduled for 26 Nov 13:04 UTC, in 3 days; attempt 1 is made then.", "deliver_at",
		},
		{
			"sent by this process", func(s *Situation) {
				pending(s)
				s.SentAt = noon().Add(-12300 * time.Millisecond)
				observed(webhook.Observation{InFlight: 10})(s)
			}, InProgress,
			"Attempt 1 was sent at 12:03:55 UTC, 12 s ago, and has no answer yet; it times out after 15 s.",
			"The endpoint allows 10 requests at a time, and 10 are under way.",
		},
		{
			"sent by another process", func(s *Situation) {
				pending(s)
				s.Delivery.ClaimedUntil = noon().Add(8 * time.Second)
				s.Endpoint = nil
			}, InProgress,
			"Attempt 1 is under way and has no answer yet.", "The receiver has not answered yet.",
		},
		{
			"sent by another process, which does not answer", func(s *Situation) {
				pending(s)
				s.Delivery.ClaimedUntil, s.Stale = noon().Add(8*time.Second), true
			}, InProgress,
			"Attempt 1 is under way and has no answer yet; it times out after 15 s.",
			"The receiver at shop.example has not answered yet. The worker that enforces the endpoint's limits did not answer in time",
		},
		{
			"503", last("http_503"), RetryResponse,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable; attempt 4 follows at 12:05:10 UTC, in 62 s; up to 16 attempts, until 26 Nov 12:00 UTC.",
			"The receiver at shop.example answered 503 (Service Unavailable).",
		},
		{
			"503 of an unknown endpoint", last("http_503", func(s *Situation) { s.Endpoint = nil }), RetryResponse,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; until 26 Nov 12:00 UTC.", "The receiver answered 503",
		},
		{
			"overdue", last("http_503", func(s *Situation) { s.Delivery.DueAt = noon().Add(-3 * time.Minute) }), RetryResponse,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable; attempt 4 has been due since 12:01:08 UTC, 3 min ago; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "",
		},
		{
			"Retry-After", last("http_503", func(s *Situation) { s.Delivery.LastOutcome.RetryAfter = 30 * time.Second }), RetryAfter,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable and asked for a pause of 30 s; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "Its Retry-After is kept",
		},
		{
			"Retry-After of a week", last("http_503", func(s *Situation) {
				s.Delivery.LastOutcome.RetryAfter, s.Delivery.DueAt = 7*day, s.Delivery.LastOutcome.At.Add(12*time.Hour)
			}), RetryAfter,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable and asked for a pause of 7 days; attempt 4 follows at 25 Nov 00:03 UTC, in 12 h; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "Of a Retry-After, 12 h count at most: the retry policy's max_retry_after.",
		},
		{
			"Retry-After past the give-up time", last("http_503", func(s *Situation) {
				s.Delivery.GiveUpAt = noon().Add(8 * time.Hour)
				s.Delivery.LastOutcome.RetryAfter, s.Delivery.DueAt = 10*time.Hour, s.Delivery.GiveUpAt.Add(-time.Minute)
			}), RetryAfter,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable and asked for a pause of 10 h; attempt 4 follows at 20:03:08 UTC, in 8 h; " +
				"up to 16 attempts, until 20:04:08 UTC.", "so a last attempt is made shortly before it",
		},
		{
			"404", last("http_404", func(s *Situation) { s.Delivery.Ambiguous = 2; s.Delivery.DueAt = noon().Add(2 * time.Hour) }), RetryNotFound,
			"Attempt 3 at 12:03:44 UTC got 404 Not Found; " +
				"attempt 4 follows at 14:04:08 UTC, in 2 h; retry 2 of at most 5 for such a failure, until 26 Nov 12:00 UTC.",
			"The receiver at shop.example answered 404 (Not Found).",
		},
		{
			"timeout", last("timeout_headers"), RetryTimeout,
			"Attempt 3 at 12:03:44 UTC timed out: connected to the receiver at shop.example, and no answer began in time; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "within the endpoint's timeout",
		},
		{
			"timeout, most of it for the name", last("timeout_headers", func(s *Situation) {
				s.Times = webhook.Times{Names: 12 * time.Second, Connecting: 20 * time.Millisecond, Waiting: 2980 * time.Millisecond}
			}), RetryTimeout,
			"Attempt 3 at 12:03:44 UTC timed out: connected to the receiver at shop.example, and no answer began in time; " +
				"12 s of 15 s went to looking up the host name shop.example; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "12 s of 15 s went to looking up the host name shop.example.",
		},
		{
			"timeout, most of it for a dead address", last("timeout_dial", func(s *Situation) {
				s.Times = webhook.Times{Names: time.Second, Connecting: 14 * time.Second}
			}), RetryTimeout,
			"Attempt 3 at 12:03:44 UTC timed out: no connection to the receiver at shop.example could be made in time; " +
				"14 s of 15 s went to connecting: an address of shop.example does not answer, or late; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "an address of shop.example does not answer",
		},
		{
			"timeout, most of it for the receiver", last("timeout_body", func(s *Situation) {
				s.Times = webhook.Times{Names: time.Second, Connecting: 2 * time.Second, TLS: 3 * time.Second, Waiting: 9 * time.Second}
			}), RetryTimeout,
			"Attempt 3 at 12:03:44 UTC timed out: the receiver at shop.example began to answer and did not end in time; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; up to 16 attempts, until 26 Nov 12:00 UTC.", "within the endpoint's timeout",
		},
		{
			"the proxy could not connect", last("proxy_connect_failed"), RetryConnection,
			"Attempt 3 at 12:03:44 UTC failed: the egress proxy could not connect to the receiver at shop.example; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; up to 16 attempts, until 26 Nov 12:00 UTC.", "The egress proxy could not connect",
		},
		{
			"the proxy refuses the host", last("proxy_refused"), RetryConnection,
			"Attempt 3 at 12:03:44 UTC was not sent: the egress proxy refuses the receiver at shop.example; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "The rules of the egress proxy do not let requests to the receiver at shop.example through.",
		},
		{
			"held, the proxy is away", func(s *Situation) {
				pending(s)
				s.Delivery.State, s.Delivery.Reason = webhook.StateHeld, webhook.ReasonInternal
				s.Delivery.LastError = "proxy_refused: the egress proxy cannot be reached"
			}, InternalFault,
			"A fault of Everpost, not of the receiver, keeps the delivery waiting: the egress proxy cannot be reached; tried again until 26 Nov 12:00 UTC.",
			"The egress proxy cannot be reached.",
		},
		{
			"refused", last("connect_refused"), RetryConnection,
			"Attempt 3 at 12:03:44 UTC failed: the receiver at shop.example refused the connection; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "",
		},
		{
			"no such host", last("dns_not_found"), RetryDNS,
			"Attempt 3 at 12:03:44 UTC failed: the host name shop.example does not exist; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "DNS has no address for the host name shop.example.",
		},
		{
			"certificate expired", last("tls_invalid", func(s *Situation) {
				s.Error = "tls_invalid: the certificate expired at 2026-11-21T00:00:00Z"
			}), RetryTLS,
			"Attempt 3 at 12:03:44 UTC failed: no secure connection to the receiver at shop.example could be made; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "The certificate expired on 21 Nov 00:00 UTC.",
		},
		{
			"certificate of the future", last("tls_invalid", func(s *Situation) {
				s.Error = "tls_invalid: the certificate is not valid before 2027-11-21T00:00:00Z"
			}), RetryTLS,
			"Attempt 3 at 12:03:44 UTC failed: no secure connection to the receiver at shop.example could be made; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "The certificate is not valid before 21 Nov 2027 00:00 UTC.",
		},
		{
			"certificate of another host", last("tls_invalid", func(s *Situation) { s.Error = "tls_invalid: the certificate is for another host" }), RetryTLS,
			"Attempt 3 at 12:03:44 UTC failed: no secure connection to the receiver at shop.example could be made; " +
				"attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "The error was: the certificate is for another host.",
		},
		{
			"token refused", last("token_refused", func(s *Situation) { s.Delivery.Ambiguous = 1 }), RetryToken,
			"Attempt 3 at 12:03:44 UTC was not sent: the token server refused the credentials; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"retry 1 of at most 5 for such a failure, until 26 Nov 12:00 UTC.", "client credentials",
		},
		{
			"unknown failure", last("unknown"), RetryUnknown,
			"Attempt 3 at 12:03:44 UTC failed for an unknown reason; attempt 4 follows at 12:05:10 UTC, in 62 s; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "",
		},
		{
			"in flight",
			deferred(webhook.ReasonInFlight, observed(webhook.Observation{InFlight: 10, Rate: 10}), func(s *Situation) { s.Ahead = &Ahead{N: 212} }),
			WaitsInFlight,
			"Waits until the receiver at shop.example has answered earlier requests; attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.",
			"The endpoint allows 10 requests at a time, and 10 are under way. 212 of the endpoint's deliveries come before it, " +
				"about 22 s at 10 requests per second.",
		},
		{
			"in flight, nothing else known", deferred(webhook.ReasonInFlight, func(s *Situation) { s.Ahead = &Ahead{N: 1000, More: true} }), WaitsInFlight,
			"Waits until the receiver at shop.example has answered earlier requests; attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.",
			"The endpoint allows 10 requests at a time. More than 1000 of the endpoint's deliveries come before it.",
		},
		{
			"host", deferred(webhook.ReasonHost), WaitsHost,
			"Waits because the receiver at shop.example is at the limit of requests at a time that all endpoints of its host share; " +
				"attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"rate, and the owner does not answer", deferred(webhook.ReasonRate, func(s *Situation) { s.Ahead, s.Stale = &Ahead{N: 1}, true }), WaitsRate,
			"Waits for its turn at the endpoint's rate of 5 requests per second; attempt 1 follows at 12:04:29 UTC, in 21 s; " +
				"tried until 26 Nov 12:00 UTC.",
			"1 of the endpoint's deliveries comes before it. " +
				"The worker that enforces the endpoint's limits did not answer in time, so details may be missing or up to 30 s old.",
		},
		{
			"rate", deferred(webhook.ReasonRate), WaitsRate,
			"Waits for its turn at the endpoint's rate of 5 requests per second; attempt 1 follows at 12:04:29 UTC, in 21 s; " +
				"tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"ramp-up", deferred(webhook.ReasonRate, observed(webhook.Observation{Recovering: true, Rate: 0.05})), WaitsRecovery,
			"Waits while the rate rises again after an outage: 3 requests per minute now; " +
				"attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"circuit", deferred(webhook.ReasonCircuitOpen, observed(webhook.Observation{
				Circuit: webhook.CircuitOpen, Since: noon().Add(-time.Minute), NextProbe: noon().Add(20 * time.Second),
				Why: "14 of 20 requests failed, the last with http_503",
			})), WaitsCircuit,
			"Waits because the circuit of the endpoint has been open since 12:03 UTC after 14 of 20 requests failed, the last with 503 Service Unavailable; " +
				"attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "Most requests to the endpoint failed",
		},
		{
			"behind an open circuit, as one of many", held(webhook.ReasonBacklog, observed(webhook.Observation{
				Circuit: webhook.CircuitOpen, Since: noon().Add(-time.Minute), NextProbe: noon().Add(20 * time.Second),
				Why: "14 of 20 requests failed, the last with connect_refused", LastFailure: "connect_refused",
			})), WaitsCircuit,
			"Waits because the circuit of the endpoint has been open since 12:03 UTC after 14 of 20 requests failed, the last with a refused connection; " +
				"sent after those before it, or given up at 26 Nov 12:00 UTC.", "The receiver at shop.example refused the connection.",
		},
		{
			"one of many, the receiver fails",
			held(webhook.ReasonBacklog, observed(webhook.Observation{
				FailureStreak: 12, LastFailure: "tls_invalid",
				LastError: "tls_invalid: the certificate expired at 2026-11-21T00:00:00Z",
			})), WaitsFailing,
			"Waits because the receiver at shop.example fails: the last 12 attempts failed, the last with a TLS error; " +
				"sent after those before it, or given up at 26 Nov 12:00 UTC.", "The certificate expired on 21 Nov 00:00 UTC.",
		},
		{
			"circuit of another process", deferred(webhook.ReasonCircuitOpen), WaitsCircuit,
			"Waits because the circuit of the endpoint is open; attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"pause of the endpoint",
			deferred(webhook.ReasonRetryAfter, observed(webhook.Observation{BlockedUntil: noon().Add(20 * time.Second)})), WaitsReceiver,
			"Waits because the receiver at shop.example asked for a pause until 12:04:28 UTC; attempt 1 follows at 12:04:29 UTC, in 21 s; " +
				"tried until 26 Nov 12:00 UTC.",
			"Retry-After",
		},
		{
			"capacity", deferred(webhook.ReasonCapacity), WaitsCapacity,
			"Waits because requests to slow receivers, or with large payloads, already use their share of the worker; " +
				"attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"no owner", deferred(webhook.ReasonNoOwner), WaitsOwner,
			"Waits because the worker that enforces the endpoint's limits did not answer in time; another takes over within seconds; " +
				"attempt 1 follows at 12:04:29 UTC, in 21 s; tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"paused", held(webhook.ReasonPaused, state(webhook.EndpointPaused, "paused by hand")), HeldPaused,
			"Waits because the endpoint is paused by hand; sent when it is resumed, or given up at 26 Nov 12:00 UTC.", "",
		},
		{
			"paused, its time stands still", held(webhook.ReasonPaused, state(webhook.EndpointPaused, ""), func(s *Situation) {
				s.Delivery.HeldAt, s.Delivery.HeldUntil = noon(), noon().Add(30*24*time.Hour)
			}), HeldPaused,
			"Waits because the endpoint is paused; sent when it is resumed, or given up at 24 Dec 12:04 UTC.",
			"The time for its retries stands still since 12:04:08 UTC, 0 s ago.",
		},
		{
			"disabled", held(webhook.ReasonDisabled, state(webhook.EndpointDisabled, "the receiver answered 410: it accepts no more events")), HeldDisabled,
			"Waits because the endpoint is disabled (the receiver answered 410: it accepts no more events); " +
				"sent when it is resumed, or given up at 26 Nov 12:00 UTC.", "",
		},
		{
			"backlog", held(webhook.ReasonBacklog, observed(webhook.Observation{Rate: 2}), func(s *Situation) { s.Ahead = &Ahead{N: 700} }), HeldBacklog,
			"Waits because the endpoint has got more deliveries than it takes soon; sent after those before it, or given up at 26 Nov 12:00 UTC.",
			"700 of the endpoint's deliveries come before it, about 6 min at 2 requests per second.",
		},
		{
			"waits for a retry, paused", last("http_503", state(webhook.EndpointPaused, "paused by hand")), RetryResponse,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable; attempt 4 is due at 12:05:10 UTC, in 62 s, " +
				"and waits from then on because the endpoint is paused by hand; " +
				"up to 16 attempts, until 26 Nov 12:00 UTC.", "answered 503",
		},
		{
			"due, disabled", last("http_503", state(webhook.EndpointDisabled, ""), func(s *Situation) { s.Delivery.DueAt = s.Now }), RetryResponse,
			"Attempt 3 at 12:03:44 UTC got 503 Service Unavailable; " +
				"attempt 4 waits because the endpoint is disabled; up to 16 attempts, until 26 Nov 12:00 UTC.", "",
		},
		{
			"scheduled, paused", func(s *Situation) {
				pending(s)
				s.Delivery.DueAt = noon().Add(49 * time.Hour)
				state(webhook.EndpointPaused, "")(s)
			}, Scheduled,
			"Scheduled for 26 Nov 13:04 UTC, in 3 days; it waits from then on because the endpoint is paused.", "",
		},
		{
			"accepted, paused", func(s *Situation) { pending(s); state(webhook.EndpointPaused, "")(s) }, Starting,
			"Accepted at 12:04:06 UTC, 2 s ago; it waits because the endpoint is paused.", "",
		},
		{
			"paused again before the backlog was released", held(webhook.ReasonBacklog, state(webhook.EndpointPaused, "")), HeldPaused,
			"Waits because the endpoint is paused; sent when it is resumed, or given up at 26 Nov 12:00 UTC.", "",
		},
		{
			"endpoint not known", held(webhook.ReasonDisabled, func(s *Situation) { s.Endpoint = nil }), HeldDisabled,
			"Waits because the endpoint is disabled; sent when it is resumed, or given up at 26 Nov 12:00 UTC.", "",
		},
		{
			"resumed, the release is stopped", held(webhook.ReasonPaused, func(s *Situation) { s.ReleaseStopped = true }), Releasing,
			"Waits because the release of the endpoint's held deliveries is stopped; sent when it goes on, or given up at 26 Nov 12:00 UTC.",
			"A person has stopped the release.",
		},
		{
			"resumed", held(webhook.ReasonPaused), Releasing,
			"The endpoint is active again and this delivery is being released; the oldest go first, tried until 26 Nov 12:00 UTC.", "",
		},
		{
			"held by a fault",
			held(webhook.ReasonInternal, func(s *Situation) { s.Delivery.LastError = "the endpoint's secret cannot be opened" }), InternalFault,
			"A fault of Everpost, not of the receiver, keeps the delivery waiting: the endpoint's secret cannot be opened; tried again until 26 Nov 12:00 UTC.",
			"No attempt is counted",
		},
		{
			"delayed by a fault", last("http_503", func(s *Situation) { s.Delivery.LastError = "PostgreSQL is not available" }), InternalFault,
			"A fault of Everpost, not of the receiver, delays attempt 4: PostgreSQL is not available; tried again until 26 Nov 12:00 UTC.", "",
		},
		{
			"endpoint deleted", last("http_503", func(s *Situation) { s.Endpoint, s.EndpointDeleted = nil, true }), Cancelling,
			"The endpoint was deleted; the delivery is being cancelled.", "",
		},
		{
			"delivered at once", ended(webhook.StateDelivered, "", "http_204", func(s *Situation) { s.Delivery.Attempts = 1 }), Delivered,
			"Delivered at 12:03:44 UTC, 24 s ago, with the first attempt: 204 in 41 ms.", "any 2xx means",
		},
		{
			"delivered later", ended(webhook.StateDelivered, "", "http_200"), Delivered,
			"Delivered at 12:03:44 UTC, 24 s ago, with attempt 3, 59 min after it was accepted: 200 in 41 ms.", "",
		},
		{
			"delivered at a time that is not known",
			ended(webhook.StateDelivered, "", "http_200", func(s *Situation) { s.Delivery.CompletedAt, s.Delivery.LastOutcome = time.Time{}, nil }), Delivered,
			"Delivered, with attempt 3.", "",
		},
		{
			"delivered by a replay", ended(webhook.StateDelivered, "", "http_200", func(s *Situation) { s.Delivery.Run = 2 }), Delivered,
			"Delivered at 12:03:44 UTC, 24 s ago, sent again (run 2), with attempt 3: 200 in 41 ms.", "",
		},
		{
			"401", ended(webhook.StateDeadLettered, "http_401", "http_401"), Refused,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: attempt 3 got 401 Unauthorized, which is final; " +
				"" + kept, "The receiver at shop.example answered 401 (Unauthorized).",
		},
		{
			"redirect", ended(webhook.StateDeadLettered, "http_302", "http_302"), Refused,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: " +
				"attempt 3 got 302 Redirect, which is final; " + kept, "a redirect, which is never followed",
		},
		{
			"denied address", ended(webhook.StateDeadLettered, "denied_address", "denied_address"), Refused,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: attempt 3 was not sent: the address of the receiver at shop.example is not allowed, " +
				"which is final; " + kept, "private",
		},
		{
			"attempts used up", ended(webhook.StateDeadLettered, "max_attempts", "http_503"), Exhausted,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: " +
				"3 attempts failed, as many as the retry policy allows; the last got 503 Service Unavailable; " + kept,
			"The receiver at shop.example answered 503",
		},
		{
			"time over, in a replay",
			ended(webhook.StateDeadLettered, "give_up_time", "http_503", func(s *Situation) { s.Delivery.Run, s.Kept = 2, 0 }), Exhausted,
			"Given up at 12:03:44 UTC: 3 attempts in run 2 failed, and the retry policy's time is over; the last got 503 Service Unavailable; " +
				"kept as a dead letter.", "",
		},
		{
			"time over without an attempt", ended(webhook.StateDeadLettered, "give_up_time", "http_503", func(s *Situation) {
				s.Delivery.Attempts, s.Delivery.RunAttempts, s.Delivery.LastOutcome = 0, 0, nil
			}), Expired,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: no attempt could be made before the give-up time; " + kept, "workers were overloaded",
		},
		{
			"time over while an attempt was under way", ended(webhook.StateDeadLettered, "give_up_time", "http_200", func(s *Situation) {
				s.Delivery.LastOutcome.Decision = retry.Delivered
			}), Expired,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: the answer to attempt 3 was not known by then; " + kept,
			"has accepted that attempt afterwards",
		},
		{
			"404s used up", ended(webhook.StateDeadLettered, "ambiguous_limit", "http_404"), Exhausted,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: 3 attempts failed, and after such a failure it is not sent again more often; " +
				"the last got 404 Not Found; " + kept, "",
		},
		{
			"Retry-After too long", ended(webhook.StateDeadLettered, "retry_after_past_give_up", "http_503", func(s *Situation) {
				s.Delivery.LastOutcome.RetryAfter = 100 * time.Hour
			}), Exhausted,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: 3 attempts failed, and the receiver asked for a pause beyond the give-up time; " +
				"the last got 503 Service Unavailable; " + kept, "It asked for a pause of 5 days.",
		},
		{
			"held too long", ended(webhook.StateDeadLettered, "held_expired", "http_503"), Expired,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: it waited until the give-up time; " + kept, "",
		},
		{
			"deferred too long", ended(webhook.StateDeadLettered, "deferred_expired", "http_503"), Expired,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: it waited for its turn until the give-up time; " + kept, "",
		},
		{
			"internal",
			ended(webhook.StateDeadLettered, "internal", "http_503", func(s *Situation) { s.Delivery.LastError = "the secret cannot be opened" }), FailedInside,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: a fault of Everpost, not of the receiver, lasted until the give-up time; " + kept,
			"The secret cannot be opened.",
		},
		{
			"payload corrupt", ended(webhook.StateDeadLettered, "payload_corrupt", "http_503"), FailedInside,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: the stored payload does not match its SHA-256, and such a payload is never sent; " +
				"" + kept, "",
		},
		{
			"terminated", ended(webhook.StateDeadLettered, "terminated", "http_503", func(s *Situation) { s.Delivery.LastOutcome = nil }), Terminated,
			"Given up at 12:03:44 UTC, 59 min after it was accepted: its workflow was terminated from outside; " + kept, "in Temporal",
		},
		{
			"cancelled", ended(webhook.StateCancelled, "no longer needed", "http_503"), Cancelled,
			"Cancelled at 12:03:44 UTC, 24 s ago, on request (\"no longer needed\"), after 3 attempts.", "no longer needed",
		},
		{
			"cancelled with its endpoint", ended(webhook.StateCancelled, "endpoint_deleted", "http_503"), Cancelled,
			"Cancelled at 12:03:44 UTC, 24 s ago, because its endpoint was deleted, after 3 attempts.", "",
		},
		{
			"discarded", ended(webhook.StateDiscarded, "discarded", "http_503"), Discarded,
			"Discarded at 12:03:44 UTC, 24 s ago, on request, after 3 attempts.", "",
		},
		{
			"past its retention", ended(webhook.StateDiscarded, "retention", "http_503"), Discarded,
			"Discarded at 12:03:44 UTC, 24 s ago, because its time as a dead letter was over, after 3 attempts.", "",
		},
	}
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	seen := map[Code]bool{}
	for _, c := range deliveryCases() {
		e := shop()
		s := Situation{Now: noon(), Endpoint: &e, Delivery: retrying("http_503")}
		c.change(&s)
		got := Delivery(s)
		require.Equal(t, c.code, got.Code, c.name)
		require.Equal(t, c.summary, got.Summary, c.name)
		require.Contains(t, got.Cause, c.cause, c.name)
		requireSentences(t, got)
		requireOneWord(t, got)
		seen[c.code] = true
	}
	for _, code := range Codes() {
		require.True(t, seen[code] || code == NoMatch || strings.HasPrefix(string(code), "endpoint_"), "no case has the code %s", code)
	}
}

var (
	rawFloat = regexp.MustCompile(`\d\.\d{2}`)
	// otherWords are words of the code for what is said as waiting and sending again, and commands, which each place offers in its own way.
	otherWords = regexp.MustCompile(`(?i)\b(backlog|deferred|deferral|admission|pending|retried|replayed)\b`)
	commands   = regexp.MustCompile(`\beverpost [a-z]`)
	urlQuery   = regexp.MustCompile(`://\S*[?#@]`)
)

// requireOneWord fails if a text has another word for waiting or for sending again.
func requireOneWord(t require.TestingT, e Explanation) {
	for _, text := range []string{e.Summary, e.Cause, e.Next, e.Remedy, e.Operator} {
		require.NotRegexp(t, otherWords, text, e.Code)
	}
}

// requireSentences fails unless every text consists of sentences.
func requireSentences(t require.TestingT, e Explanation) {
	require.Contains(t, Codes(), e.Code)
	require.NotEmpty(t, e.Summary)
	for _, text := range []string{e.Summary, e.Cause, e.Next, e.Remedy, e.Operator} {
		if text == "" {
			continue
		}
		require.NotRegexp(t, commands, text, e.Code)
		require.True(t, strings.HasSuffix(text, "."), "%s: %s", e.Code, text)
		require.NotContains(t, text, "%!", e.Code)
		require.NotContains(t, text, "{", e.Code)
		require.NotContains(t, text, "s3cr3t", "%s: %s", e.Code, text)
		require.NotRegexp(t, rawFloat, text, e.Code)
		require.NotRegexp(t, urlQuery, text, e.Code)
		require.NotContains(t, text, "  ", e.Code)
		require.NotContains(t, text, "..", e.Code)
		require.NotContains(t, text, ";;", e.Code)
		require.Equal(t, strings.ToUpper(text[:1]), text[:1], "%s: %s", e.Code, text)
	}
}

// Whatever is known, what is said is in sentences, and no secret is in it.
func TestEverySituationIsSaidInSentences(t *testing.T) {
	t.Parallel()
	reasons := []string{"", "any text of a person", "see https://user:s3cr3t@a.example/x?key=s3cr3t#s3cr3t"}
	for _, r := range retry.Reasons() {
		reasons = append(reasons, string(r))
	}
	for status := 100; status < 1000; status += 7 {
		reasons = append(reasons, string(retry.HTTPReason(status)))
	}
	reasons = append(reasons, "http_404", "http_410", "http_429", "http_503", webhook.ReasonInFlight, webhook.ReasonHost,
		webhook.ReasonRate, webhook.ReasonCircuitOpen,
		webhook.ReasonCapacity, webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint, webhook.ReasonPaused, webhook.ReasonDisabled, webhook.ReasonBacklog)
	rapid.Check(t, func(t *rapid.T) {
		instant := func(name string) time.Time {
			seconds := rapid.IntRange(-400*86400, 400*86400).Draw(t, name)
			if rapid.IntRange(0, 3).Draw(t, name+" is zero") == 0 {
				return time.Time{}
			}
			return noon().Add(time.Duration(seconds) * time.Second)
		}
		e := shop()
		e.State = rapid.SampledFrom([]webhook.EndpointState{webhook.EndpointActive, webhook.EndpointPaused, webhook.EndpointDisabled}).Draw(t, "endpoint")
		e.StateReason = rapid.SampledFrom(reasons).Draw(t, "state reason")
		o := webhook.Observation{
			Circuit:  rapid.SampledFrom([]webhook.CircuitState{webhook.CircuitClosed, webhook.CircuitHalfOpen, webhook.CircuitOpen}).Draw(t, "circuit"),
			Rate:     rapid.Float64Range(0, 10_000).Draw(t, "rate"),
			InFlight: rapid.IntRange(0, 20).Draw(t, "in flight"), Recovering: rapid.Bool().Draw(t, "recovering"),
			NextProbe: instant("probe"), BlockedUntil: instant("blocked"), Since: instant("since"),
			Latency:   time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "latency")),
			Delivered: rapid.IntRange(0, 3000).Draw(t, "delivered"), Failed: rapid.IntRange(0, 3000).Draw(t, "failed"),
			FailureStreak: rapid.IntRange(0, 3).Draw(t, "streak"), DeferReason: rapid.SampledFrom(reasons).Draw(t, "defer reason"),
		}
		d := webhook.Delivery{
			Progress: webhook.Progress{
				Run: rapid.IntRange(1, 3).Draw(t, "run"), State: rapid.SampledFrom(webhook.States()).Draw(t, "state"),
				Reason: rapid.SampledFrom(reasons).Draw(t, "reason"), Attempts: rapid.IntRange(0, 16).Draw(t, "attempts"),
				RunAttempts: rapid.IntRange(0, 16).Draw(t, "run attempts"), Ambiguous: rapid.IntRange(0, 7).Draw(t, "ambiguous"),
				DueAt: instant("due"), GiveUpAt: instant("give up"),
			},
			LastError: rapid.SampledFrom(reasons).Draw(t, "last error"), CreatedAt: instant("created"), CompletedAt: instant("completed"),
			ClaimedUntil: instant("claimed"),
		}
		if rapid.Bool().Draw(t, "outcome") {
			d.LastOutcome = &webhook.LastOutcome{
				Reason: rapid.SampledFrom(reasons).Draw(t, "outcome reason"), At: instant("outcome"), Latency: o.Latency,
				RetryAfter: time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "retry after")),
			}
		}
		s := Situation{
			Now: noon(), Delivery: d, EndpointDeleted: rapid.Bool().Draw(t, "deleted"), SentAt: instant("sent"), EngineAway: instant("away"),
			Error: rapid.SampledFrom([]string{"", "unknown: " + reasons[2], "tls_invalid: x509: any"}).Draw(t, "error"),
		}
		if rapid.Bool().Draw(t, "endpoint known") {
			s.Endpoint = &e
		}
		if rapid.Bool().Draw(t, "observed") {
			s.Observed = &o
		}
		if rapid.Bool().Draw(t, "ahead") {
			s.Ahead = &Ahead{N: rapid.IntRange(0, 1000).Draw(t, "n"), More: rapid.Bool().Draw(t, "more")}
		}
		requireSentences(t, Delivery(s))
		s.Now, s.Observed = time.Time{}, nil
		requireLasting(t, Delivery(s))
		h := webhook.Health{Endpoint: e, Observed: o, Backlog: webhook.Backlog{Retrying: 2, Held: 1, NextAt: instant("next")}}
		if d.LastOutcome != nil {
			h.LastFailure = &webhook.LastFailure{Reason: d.LastOutcome.Reason, At: d.LastOutcome.At, Error: s.Error}
		}
		requireSentences(t, Endpoint(&h, noon()))
	})
}

func TestEvent(t *testing.T) {
	t.Parallel()
	event := webhook.Event{Type: "order.paid", CreatedAt: noon().Add(-time.Minute)}
	named := func(host string, created time.Duration, types ...string) webhook.Endpoint {
		return webhook.Endpoint{URL: "https://" + host + "/hook?secret", EventTypes: types, CreatedAt: noon().Add(created)}
	}
	id := webhook.EndpointID{}.String()
	paused := named("b.example", -time.Hour, "user.*", "invoice.paid", "x", "y", "z")
	paused.State = webhook.EndpointPaused
	for want, endpoints := range map[string][]webhook.Endpoint{
		"the tenant has no endpoint.": nil,
		"the tenant has 1 endpoint; " + id + " (a.example) subscribes to invoice.*.": {named("a.example", -time.Hour, "invoice.*")},
		"the tenant has 2 endpoints; " + id + " (c.example) was created later, at 12:04:03 UTC; " + id +
			" (b.example, paused) subscribes to user.*, invoice.paid, x and 2 more.": {paused, named("c.example", -5*time.Second, "order.*")},
		"the tenant has 1 endpoint; " + id + " (d.example) has subscribed to this type only since a later change.": {named("d.example", -time.Hour, "*")},
		"the tenant has 5 endpoints; " + strings.Repeat(id+" (a.example) subscribes to a; ", 3) + "2 more did not match.": slices.Repeat(
			[]webhook.Endpoint{named("a.example", -time.Hour, "a")}, 5),
	} {
		var of []*webhook.Endpoint
		for i := range endpoints {
			of = append(of, &endpoints[i])
		}
		got := Event(event, of, nil, noon())
		require.Equal(t, "No endpoint matched the type order.paid, so nothing is sent; "+want, got.Summary)
		requireSentences(t, got)
	}
	filtering := named("f.example", -time.Hour, "order.*")
	filtering.Filter = filter.Stored(`{"payload":{"total":1}}`)
	got := Event(event, []*webhook.Endpoint{&filtering}, nil, noon())
	require.Equal(t, "No endpoint matched the event of the type order.paid, so nothing is sent; the tenant has 1 endpoint; "+id+
		" (f.example) subscribes to this type with a filter.", got.Summary)
	require.Contains(t, got.Remedy, "Compare the event with the filter of")
	requireSentences(t, got)
	deleted := []webhook.DeletedEndpoint{
		{URL: "https://old.example", EventTypes: []string{"*"}, DeletedAt: noon().Add(-time.Hour)},
		{URL: "https://other.example", EventTypes: []string{"user.*"}, DeletedAt: noon().Add(-time.Hour)},
		{URL: "https://later.example", EventTypes: []string{"*"}, DeletedAt: noon()},
	}
	require.Equal(t, "No endpoint matched the type order.paid, so nothing is sent; the tenant has no endpoint; "+id+
		" (old.example) was deleted before, at 11:04:08 UTC.", Event(event, nil, deleted, noon()).Summary)
	event.Type = webhook.EventEndpointPaused
	require.Contains(t, Event(event, nil, nil, noon()).Remedy, "* does not match operational events")
}

// The page has a section for every code, and no other.
func TestPageHasEveryCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/explanations.md")
	require.NoError(t, err)
	var sections []Code
	for line := range strings.Lines(string(text)) {
		if code, found := strings.CutPrefix(line, "### "); found {
			sections = append(sections, Code(strings.TrimSpace(code)))
		}
	}
	require.Equal(t, Codes(), sections)
	for _, code := range Codes() {
		_, section, _ := strings.Cut(string(text), fmt.Sprintf("\n### %s\n", code))
		section, _, _ = strings.Cut(section, "\n#")
		for _, part := range []string{"*Says:* ", "*Means:* ", "*Do:* "} {
			require.Contains(t, section, part, code)
		}
	}
}

func TestForeignTextIsMadeFit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		"a\n b\t c":                            "a b c",
		"see https://u:p@h.example:1/p?q#f ok": "see https://h.example:1/p ok",
		"https://h.example?q":                  "https://h.example",
		"https://h.example#f":                  "https://h.example",
		strings.Repeat("é", 200):               strings.Repeat("é", 150) + "…",
	} {
		require.Equal(t, want, foreign(text))
	}
}

func TestRedirectNamesItsTarget(t *testing.T) {
	t.Parallel()
	require.Equal(t, "the redirect leads to https://elsewhere.example/echo", errorDetail("redirect: https://elsewhere.example/echo", noon()))
	require.Contains(t, failureOf("http_302", "").remedy, "success_statuses")
}

// "Have the receiver answer at once" is said of the wait for an answer only.
func TestRemedyOfTimeouts(t *testing.T) {
	t.Parallel()
	const much, little = 9 * time.Second, time.Second
	for _, reason := range []string{"timeout_dial", "timeout_tls", "timeout_headers", "timeout_body", "timeout_total"} {
		for remedy, spent := range map[string]webhook.Times{
			"Check the name servers":     {Names: much, Connecting: little, TLS: little, Waiting: little},
			"Check that each address":    {Names: little, Connecting: much, TLS: little, Waiting: little},
			"Check that the TLS":         {Names: little, Connecting: little, TLS: much, Waiting: little},
			failureOf(reason, "").remedy: {Names: little, Connecting: little, TLS: little, Waiting: much},
		} {
			require.True(t, strings.HasPrefix(failureOf(reason, "").spent(spent).remedy, remedy), "%s %+v", reason, spent)
		}
	}
	for reason, receiver := range map[string]bool{
		"timeout_dial": false, "timeout_tls": false, "timeout_headers": true, "timeout_body": true, "timeout_total": true,
	} {
		require.Equal(t, receiver, strings.HasPrefix(failureOf(reason, "").remedy, "Have the receiver answer at once"), reason)
	}
	quick := failureOf("http_503", "")
	require.Equal(t, quick, quick.spent(webhook.Times{Names: much}), "not a timeout")
}

// The same remedy wherever the last failure of an endpoint is explained.
func TestRemedyOfTimeoutsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	const names = "Check the name servers"
	spent := webhook.Times{Names: 12 * time.Second, Waiting: 3 * time.Second}
	ep := webhook.Endpoint{State: webhook.EndpointActive, URL: "https://shop.example/"}
	o := webhook.Observation{
		Failed: 20, FailureStreak: 20, LastFailure: "timeout_headers", LastFailedAt: noon(), LastTimes: spent, Circuit: webhook.CircuitOpen,
	}
	s := Situation{Now: noon(), Endpoint: &ep, Observed: &o}
	require.Contains(t, obstacles{&s}.circuitOpen().Remedy, names)
	require.Contains(t, obstacles{&s}.failing().Remedy, names)
	for _, h := range []webhook.Health{
		{Endpoint: ep, Observed: o},
		{Endpoint: ep, LastFailure: &webhook.LastFailure{Reason: "timeout_headers", At: noon(), Times: spent}},
	} {
		seen := health{Health: &h, now: noon()}
		require.Contains(t, seen.remedy(), names)
		require.Contains(t, seen.lastFailure(), "12 s of 15 s went to looking up the host name shop.example")
	}
}
