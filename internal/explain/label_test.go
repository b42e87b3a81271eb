package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Every reason has words of its own for a list, and few.
func TestEveryReasonHasALabel(t *testing.T) {
	t.Parallel()
	reasons := []string{
		webhook.ReasonInFlight, webhook.ReasonHost, webhook.ReasonRate, webhook.ReasonCircuitOpen, webhook.ReasonCapacity, webhook.ReasonNoOwner,
		webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint, webhook.ReasonPaused, webhook.ReasonDisabled, webhook.ReasonBacklog,
		webhook.ReasonPayloadErased, webhook.ReasonUnknown,
	}
	for _, r := range retry.Reasons() {
		reasons = append(reasons, string(r))
	}
	for status := 100; status < 1000; status++ {
		reasons = append(reasons, string(retry.HTTPReason(status)))
	}
	for _, reason := range reasons {
		label, brief := Label(reason), Brief(reason)
		require.NotEmpty(t, label, reason)
		require.NotContains(t, brief, "_", reason)
		require.NotContains(t, brief, "http_", reason)
		require.True(t, strings.HasPrefix(brief, label), "%s: %s", label, brief)
		require.LessOrEqual(t, len(strings.Fields(brief)), 14, brief)
	}
	require.Equal(t, "401 Unauthorized: it refuses the credentials", Brief("http_401"))
	require.Equal(t, "302 Redirect: never followed", Brief("http_302"))
	require.Equal(t, "410 Gone: it accepts no more events", Brief("http_410"))
	require.Equal(t, "TLS failed", Label("tls_invalid"))
	require.Equal(t, "599", Label("http_599"))
	require.Equal(t, "no longer needed", Label("no longer needed"), "a person's text")
}

// What has different causes has different words, in lists and in sentences: a receiver that is silent, one that hangs up, one that cannot be reached.
func TestHangingIsNotHangingUp(t *testing.T) {
	t.Parallel()
	reasons := []retry.Reason{
		retry.ReasonTimeoutDial, retry.ReasonTimeoutTLS, retry.ReasonTimeoutHeaders, retry.ReasonTimeoutBody, retry.ReasonTimeoutTotal,
		retry.ReasonUnexpectedEOF, retry.ReasonConnectionReset, retry.ReasonConnectRefused,
	}
	for name, words := range map[string]func(string) string{
		"label": Label, "outcome": Outcome, "what": func(r string) string { return failureOf(r, "").what },
		"cause": func(r string) string { return failureOf(r, "").what + failureOf(r, "").cause + failureOf(r, "").remedy },
	} {
		seen := map[string]retry.Reason{}
		for _, r := range reasons {
			said := words(string(r))
			require.NotContains(t, seen, said, "%s of %s and %s", name, r, seen[said])
			seen[said] = r
		}
	}
	silent, hungUp := failureOf(string(retry.ReasonTimeoutHeaders), ""), failureOf(string(retry.ReasonUnexpectedEOF), "")
	require.Contains(t, silent.cause, "the connection was made")
	require.Contains(t, hungUp.remedy, "hung up")
	require.NotEqual(t, silent.remedy, hungUp.remedy)
}

// A delivery's deepest cause is said in a few words, whatever makes it wait.
func TestBriefOfADelivery(t *testing.T) {
	t.Parallel()
	everyMechanism(func(m mechanisms) {
		got := Delivery(m.situation())
		switch {
		case m.endpoint != webhook.EndpointActive:
			require.Equal(t, "endpoint "+m.endpoint.String()+", too many requests failed", got.Brief, "%+v", m)
		case got.Code == InternalFault:
			require.Equal(t, "fault of Everpost: not of the receiver", got.Brief, "%+v", m)
		case got.Code == WaitsCircuit && m.circuit != webhook.CircuitClosed, got.Code == WaitsFailing:
			require.Equal(t, "503 Service Unavailable: overloaded or in maintenance", got.Brief, "%+v", m)
		case got.Code == WaitsReceiver:
			require.NotEmpty(t, got.Brief, "%+v", m)
		}
		require.LessOrEqual(t, len(strings.Fields(got.Brief)), 14, got.Brief)
		require.NotRegexp(t, "its endpoint is (paused|disabled)", got.Brief, "it is active, or named above: %+v", m)
	})
	for _, c := range deliveryCases() {
		e := shop()
		s := Situation{Now: noon(), Endpoint: &e, Delivery: retrying("http_503")}
		c.change(&s)
		got := Delivery(s)
		switch got.Code { //nolint:exhaustive // the others may have none
		case Refused, Exhausted, Expired, FailedInside, Terminated, RetryResponse, RetryTimeout, RetryConnection, RetryDNS,
			RetryTLS, RetryNotFound, HeldPaused, HeldDisabled:
			require.NotEmpty(t, got.Brief, c.name)
		case Delivered, Cancelled, Discarded, Scheduled:
			require.Empty(t, got.Brief, c.name)
		}
		require.NotContains(t, got.Brief, "_", c.name)
		require.NotContains(t, got.Brief, "s3cr3t", c.name)
	}
}

// What a person reads of an endpoint is the failure, not the rule that has disabled it.
func TestBriefOfAStoppedEndpoint(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		DisabledGone:                             "410 Gone: it accepts no more events",
		DisabledRefused(100, "http_404"):         "404 Not Found",
		DisabledExhausted(10, "http_503"):        "503 Service Unavailable",
		"paused by hand (maintenance)":           "paused by hand (maintenance)",
		DisabledExhausted(10, "timeout_headers"): "no answer in time",
	} {
		require.Equal(t, want, stoppedBriefly(reason))
	}
	gone := webhook.Health{Endpoint: webhook.Endpoint{State: webhook.EndpointDisabled, StateReason: DisabledGone}}
	e := Endpoint(&gone, noon())
	require.Equal(t, "410 Gone: it accepts no more events", e.Brief)
	require.Contains(t, e.Summary, "nothing waits")
	require.Equal(t, "What comes from now on waits until it is resumed, or is given up when its time is over.", e.Next, "nothing waits yet")
	gone.Backlog.Held = 1
	require.Contains(t, Endpoint(&gone, noon()).Next, "Its deliveries wait")
}

// The cause of a redirect and of a certificate is in the few words, too.
func TestBriefNamesWhatTheErrorSays(t *testing.T) {
	t.Parallel()
	require.Equal(t, "302 Redirect to https://b.example/ok: never followed", briefly("http_302", webhook.RedirectError+"https://b.example/ok?s3cr3t", noon()))
	require.Equal(t, "TLS failed: the certificate expired on 21 Nov 00:00 UTC",
		briefly("tls_invalid", "tls_invalid: the certificate expired at 2026-11-21T00:00:00Z", noon()))
	require.Equal(t, "connection refused: nothing listens there, or a firewall refuses",
		briefly("connect_refused", "connect_refused: connection refused", noon()))
}
