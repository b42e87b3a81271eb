package retry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// received is the arrival time of the answers in these tests: 2025-03-04 05:06:07 UTC.
func received() time.Time {
	return time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
}

func TestClassifyEveryStatus(t *testing.T) {
	t.Parallel()

	retried := []int{404, 408, 425, 429}
	for status := -1; status <= 1100; status++ {
		got := retry.Classify(retry.Answer{Status: status, ReceivedAt: received(), RetryAfter: "7"}, retry.Default())

		want := retry.Outcome{Decision: retry.Permanent, Status: status, Reason: retry.Reason(fmt.Sprintf("http_%03d", status))}
		switch {
		case status < 100 || status > 999:
			want = retry.Outcome{Decision: retry.Retry, Reason: "http_000", BreakerFailure: true}
		case status/100 == 2:
			want.Decision, want.Reason = retry.Delivered, retry.ReasonDelivered
		case status/100 == 1 || status >= 500:
			want.Decision, want.BreakerFailure = retry.Retry, true
		case slices.Contains(retried, status):
			want.Decision = retry.Retry
			want.Ambiguous = status == 404
			want.BreakerFailure = status == 429
		case status == 410:
			want.DisableEndpoint = true
		}
		if want.Decision == retry.Retry {
			want.RetryAfter = 7 * time.Second
		}
		require.Equal(t, want, got, "status %d", status)

		if code, isStatus := got.Reason.Status(); isStatus {
			require.Equal(t, retry.NormalStatus(status), code)
		} else {
			require.Contains(t, retry.Reasons(), got.Reason)
		}
	}
}

func TestClassifyEveryFault(t *testing.T) {
	t.Parallel()

	type row struct {
		decision                  retry.Decision
		reason                    retry.Reason
		ambiguous, breakerFailure bool
	}
	table := map[retry.Failure]row{
		retry.FailureDNSNotFound:        {retry.Retry, "dns_not_found", false, true},
		retry.FailureDNSTemporary:       {retry.Retry, "dns_temporary", false, false},
		retry.FailureDenied:             {retry.Permanent, "denied_address", false, false},
		retry.FailureConnectRefused:     {retry.Retry, "connect_refused", false, true},
		retry.FailureConnectionReset:    {retry.Retry, "connection_reset", false, true},
		retry.FailureUnexpectedEOF:      {retry.Retry, "unexpected_eof", false, true},
		retry.FailureProtocol:           {retry.Retry, "protocol_error", false, true},
		retry.FailureTLS:                {retry.Retry, "tls_invalid", false, true},
		retry.FailureTimeoutDial:        {retry.Retry, "timeout_dial", false, true},
		retry.FailureTimeoutTLS:         {retry.Retry, "timeout_tls", false, true},
		retry.FailureTimeoutHeaders:     {retry.Retry, "timeout_headers", false, true},
		retry.FailureHeadersIncomplete:  {retry.Retry, "headers_incomplete", false, true},
		retry.FailureTimeoutBody:        {retry.Retry, "timeout_body", false, true},
		retry.FailureTimeoutTotal:       {retry.Retry, "timeout_total", false, true},
		retry.FailureProxyRefused:       {retry.Retry, "proxy_refused", false, true},
		retry.FailureProxyConnectFailed: {retry.Retry, "proxy_connect_failed", false, true},
		retry.FailureTokenRefused:       {retry.Retry, "token_refused", true, false},
		retry.FailureTokenUnavailable:   {retry.Retry, "token_unavailable", false, false},
		retry.FailureUnknown:            {retry.Retry, "unknown", false, false},
		"of a later release":            {retry.Retry, "unknown", false, false},
	}
	for _, failure := range append(retry.Failures(), "of a later release") {
		want, known := table[failure]
		require.True(t, known, "failure %s is not in the table", failure)

		got := retry.Classify(retry.Answer{Failure: failure, ReceivedAt: received()}, retry.Default())
		require.Equal(t, retry.Outcome{
			Decision: want.decision, Reason: want.reason, Ambiguous: want.ambiguous, BreakerFailure: want.breakerFailure,
		}, got, failure)
		require.Contains(t, retry.Reasons(), got.Reason)

		// A status takes precedence over a failure.
		for _, status := range []int{204, 301, 404, 410, 503} {
			whole := retry.Classify(retry.Answer{Status: status, ReceivedAt: received()}, retry.Default())
			broken := retry.Classify(retry.Answer{Status: status, Failure: failure, ReceivedAt: received()}, retry.Default())
			require.Equal(t, whole, broken, "%s after %d", failure, status)
		}
	}
}

// TestWithoutAmbiguousDelays: outcomes that would be ambiguous are permanent, and all others
// are unchanged. The zero policy is the default, which has ambiguous delays.
func TestWithoutAmbiguousDelays(t *testing.T) {
	t.Parallel()

	never := retry.Default()
	never.AmbiguousDelays = nil
	changed := 0
	hold := func(answer retry.Answer) {
		answer.ReceivedAt, answer.RetryAfter = received(), "7"
		want := retry.Classify(answer, retry.Default())
		require.Equal(t, want, retry.Classify(answer, retry.Policy{}))
		if want.Ambiguous {
			want.Decision, want.Ambiguous, want.RetryAfter = retry.Permanent, false, 0
			changed++
		}
		require.Equal(t, want, retry.Classify(answer, never))
	}
	for status := range 1001 {
		hold(retry.Answer{Status: status})
	}
	for _, failure := range append(retry.Failures(), retry.FailureNone) {
		hold(retry.Answer{Failure: failure})
	}
	require.Equal(t, 2, changed, "404 and token_refused")

	never.RetryStatuses = []int{404}
	require.Equal(t, retry.Retry, retry.Classify(retry.Answer{Status: 404}, never).Decision, "a status that is listed is not ambiguous")
}

// TestStandardWebhooksRetriesWhatMayBeRetried: every status that a policy may override is
// retried, none is ambiguous, and only 410 ends the delivery and disables the endpoint.
func TestStandardWebhooksRetriesWhatMayBeRetried(t *testing.T) {
	t.Parallel()

	policy := preset(t, "standard-webhooks")
	for status := -1; status <= 1100; status++ {
		plain := retry.Classify(retry.Answer{Status: status}, retry.Default())
		got := retry.Classify(retry.Answer{Status: status}, policy)
		switch {
		case status/100 == 2, status/100 == 3, status == 410:
			require.Equal(t, plain, got, "status %d", status)
		default:
			plain.Decision, plain.Ambiguous = retry.Retry, false
			require.Equal(t, plain, got, "status %d", status)
		}
	}
	require.True(t, retry.Classify(retry.Answer{Status: 410}, policy).DisableEndpoint)
	for _, failure := range append(retry.Failures(), retry.FailureNone) {
		require.Equal(t, retry.Classify(retry.Answer{Failure: failure}, retry.Default()), retry.Classify(retry.Answer{Failure: failure}, policy))
	}
}

func TestClassifyOverrides(t *testing.T) {
	t.Parallel()

	for status := range 1001 {
		plain := retry.Classify(retry.Answer{Status: status}, retry.Default())
		fixed := status < 100 || status > 999 || status/100 == 2 || status/100 == 3

		again := retry.Default()
		again.RetryStatuses = []int{status}
		got := retry.Classify(retry.Answer{Status: status, RetryAfter: "9"}, again)
		if fixed {
			require.Equal(t, plain.Decision, got.Decision, "status %d", status)
		} else {
			require.Equal(t, retry.Retry, got.Decision, "status %d", status)
			require.False(t, got.Ambiguous, "status %d", status)
			require.False(t, got.DisableEndpoint, "status %d", status)
			require.Equal(t, 9*time.Second, got.RetryAfter, "status %d", status)
		}

		never := retry.Default()
		never.PermanentStatuses = []int{status}
		got = retry.Classify(retry.Answer{Status: status, RetryAfter: "9"}, never)
		if fixed {
			require.Equal(t, plain.Decision, got.Decision, "status %d", status)
		} else {
			require.Equal(t, retry.Permanent, got.Decision, "status %d", status)
			require.False(t, got.Ambiguous, "status %d", status)
			require.Equal(t, status == 410, got.DisableEndpoint, "status %d", status)
			require.Zero(t, got.RetryAfter, "status %d", status)
		}
		require.Equal(t, plain.BreakerFailure, got.BreakerFailure, "an override does not change the receiver's health")
		require.Equal(t, plain.Reason, got.Reason)
	}
}

func TestClassifyRateLimit(t *testing.T) {
	t.Parallel()

	const date = "Tue, 04 Mar 2025 06:00:00 GMT" // differs from the local clock
	epoch := time.Date(2025, time.March, 4, 6, 0, 0, 0, time.UTC).Unix()
	table := []struct {
		name                    string
		remaining, reset, field string
		want                    time.Duration
	}{
		{"nothing said", "", "", "", 0},
		{"seconds", "0", "30", "", 30 * time.Second},
		{"fraction of a second", " 0 ", " 1.5 ", "", 1500 * time.Millisecond},
		{"unix seconds", "0", strconv.FormatInt(epoch+40, 10), "", 40 * time.Second},
		{"unix milliseconds", "0", strconv.FormatInt((epoch+40)*1000+250, 10), "", 40250 * time.Millisecond},
		{"unix seconds in the past", "0", strconv.FormatInt(epoch-40, 10), "", 0},
		{"HTTP-date", "0", "Tue, 04 Mar 2025 06:00:50 GMT", "", 50 * time.Second},
		{"something remains", "1", "30", "", 0},
		{"rubbish", "none", "30", "", 0},
		{"rubbish reset", "0", "soon", "", 0},
		{"not a number", "0", "NaN", "", 0},
		{"infinite", "0", "+Inf", "", 0},
		{"negative", "0", "-5", "", 0},
		{"huge", "0", "1e300", "", 1<<63 - 1 - time.Duration(epoch)*time.Second},
		{"dictionary", "", "", "limit=10, remaining=0, reset=20", 20 * time.Second},
		{"dictionary, remaining", "", "", "limit=10, remaining=3, reset=20", 0},
		{"list", "", "", `"burst";r=5;t=90, "day;r=7,";r=0;t=60`, 60 * time.Second},
		{"list, all remaining", "", "", `"burst";r=5;t=90,"day";r=1;t=60`, 0},
		{"list, no time", "", "", `"burst";r=0`, 0},
		{"open quote", "", "", `"burst;r=0;t=5\`, 0},
		{"longest counts", "0", "30", `"a";r=0;t=10`, 30 * time.Second},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{200, 429, 400} {
				got := retry.Classify(retry.Answer{
					Status: status, ReceivedAt: received(), Date: date,
					RateLimitRemaining: row.remaining, RateLimitReset: row.reset, RateLimit: row.field,
				}, retry.Default())
				require.Equal(t, row.want, got.PaceFor)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()

	seen := map[retry.Reason]bool{}
	for _, reason := range retry.Reasons() {
		require.False(t, seen[reason], reason)
		seen[reason] = true
		_, isStatus := reason.Status()
		require.False(t, isStatus)
	}
	status, ok := retry.HTTPReason(503).Status()
	require.True(t, ok)
	require.Equal(t, 503, status)

	for _, text := range []string{"", "http_", "http_50", "http_5030", "http_099", "http_-10", "HTTP_503", "delivered ", "http_٣٣٣", "no"} {
		_, isStatus := retry.Reason(text).Status()
		require.False(t, isStatus, text)
	}
}

func TestOutcomeSurvivesJSON(t *testing.T) {
	t.Parallel()

	for _, want := range []retry.Outcome{
		{},
		retry.Classify(retry.Answer{Status: 410}, retry.Default()),
		retry.Classify(retry.Answer{Status: 429, RetryAfter: "99999999999999999999"}, retry.Default()),
		retry.Classify(retry.Answer{Failure: retry.FailureTLS}, retry.Default()),
	} {
		text, err := json.Marshal(want)
		require.NoError(t, err)
		var got retry.Outcome
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want, got)
	}

	var decision retry.Decision
	err := json.Unmarshal([]byte(`"`+strings.Repeat("x", 1000)+`"`), &decision)
	require.ErrorContains(t, err, "delivered, retry or permanent")
	require.Less(t, len(err.Error()), 200, "the text is cut")
}

// A redirect that the endpoint accepts is delivered. No other status can be accepted that way.
func TestAcceptedRedirects(t *testing.T) {
	t.Parallel()

	accepted := []int{200, 302, 303, 404, 410, 503}
	for status := range 1000 {
		plain := retry.Classify(retry.Answer{Status: status}, retry.Default())
		got := retry.Classify(retry.Answer{Status: status}, retry.Default(), accepted...)
		if status == 302 || status == 303 {
			require.Equal(t, retry.Permanent, plain.Decision)
			require.Equal(t, retry.Outcome{Decision: retry.Delivered, Reason: retry.ReasonDelivered, Status: status}, got)
			continue
		}
		require.Equal(t, plain, got, status)
	}
}
