package egress

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// receiversNow is the Date of the responses below, years behind this machine's clock:
// points in time come out right only when they are compared with it.
const receiversNow = "Tue, 04 Mar 2025 06:00:00 GMT"

func receiversUnix() int64 { return time.Date(2025, time.March, 4, 6, 0, 0, 0, time.UTC).Unix() }

// hinted sends to a receiver that responds with the header fields and returns the outcome.
func hinted(t *testing.T, status int, fields string) retry.Outcome {
	t.Helper()
	answer := fmt.Sprintf("HTTP/1.1 %d Hinted\r\nDate: %s\r\n%sContent-Length: 0\r\n\r\n", status, receiversNow, fields)
	r := setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, answer)})
	requireFailure(t, r, retry.FailureNone, status)
	return retry.Classify(r.Answer, retry.Default())
}

// Every form in which receivers report an exhausted rate limit, over a real connection: the
// outcome has it, whatever the status.
func TestRateLimitHints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string
		want   time.Duration
	}{
		"none": {"", 0},

		"seconds":              {"X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 30\r\n", 30 * time.Second},
		"lower case":           {"x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 30\r\n", 30 * time.Second},
		"fraction of a second": {"X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 0.25\r\n", 250 * time.Millisecond},
		"unix seconds":         {fmt.Sprintf("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: %d\r\n", receiversUnix()+45), 45 * time.Second},
		"unix milliseconds":    {fmt.Sprintf("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: %d\r\n", (receiversUnix()+45)*1000+500), 45500 * time.Millisecond},
		"HTTP-date":            {"X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: Tue, 04 Mar 2025 06:01:00 GMT\r\n", time.Minute},
		"overdrawn":            {"X-RateLimit-Remaining: -3\r\nX-RateLimit-Reset: 30\r\n", 30 * time.Second},
		"something remains":    {"X-RateLimit-Remaining: 1\r\nX-RateLimit-Reset: 30\r\n", 0},
		"in the past":          {fmt.Sprintf("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: %d\r\n", receiversUnix()-45), 0},
		"no reset":             {"X-RateLimit-Remaining: 0\r\n", 0},
		"no remaining":         {"X-RateLimit-Reset: 30\r\n", 0},
		"rubbish":              {"X-RateLimit-Remaining: nothing\r\nX-RateLimit-Reset: soon\r\n", 0},

		// The IETF drafts: a field for each value, then a dictionary, then a list of
		// policies.
		"drafts to 06":           {"RateLimit-Limit: 100\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 20\r\n", 20 * time.Second},
		"draft 07":               {"RateLimit: limit=100, remaining=0, reset=20\r\n", 20 * time.Second},
		"draft 07 in two lines":  {"RateLimit: limit=100, remaining=0\r\nRateLimit: reset=20\r\n", 20 * time.Second},
		"draft 07, some remain":  {"RateLimit: limit=100, remaining=9, reset=20\r\n", 0},
		"list":                   {"RateLimit-Policy: \"burst\";q=10;w=60\r\nRateLimit: \"burst\";r=0;t=20\r\n", 20 * time.Second},
		"list of two":            {"RateLimit: \"burst\";r=3;t=20, \"day\";r=0;t=3600\r\n", time.Hour},
		"list in two lines":      {"RateLimit: \"burst\";r=3;t=20\r\nRateLimit: \"day\";r=0;t=3600\r\n", time.Hour},
		"list, all of it left":   {"RateLimit: \"burst\";r=3;t=20, \"day\";r=7;t=3600\r\n", 0},
		"policy alone":           {"RateLimit-Policy: \"burst\";q=0;w=60\r\n", 0},
		"several forms, longest": {"X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 5\r\nRateLimit: \"day\";r=0;t=60\r\n", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{200, 204, 400, 404, 410, 429, 503} {
				require.Equal(t, c.want, hinted(t, status, c.fields).PaceFor, "%d", status)
			}
		})
	}
}

// Every form of Retry-After, over a real connection: honoured for statuses that are
// retried, ignored for all others.
func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string
		want   time.Duration
	}{
		"none":        {"", 0},
		"seconds":     {"Retry-After: 120\r\n", 2 * time.Minute},
		"blanks":      {"retry-after:  \t120  \r\n", 2 * time.Minute},
		"zero":        {"Retry-After: 0\r\n", 0},
		"overflow":    {"Retry-After: 99999999999999999999999999\r\n", math.MaxInt64},
		"negative":    {"Retry-After: -5\r\n", 0},
		"fraction":    {"Retry-After: 1.5\r\n", 0},
		"rubbish":     {"Retry-After: soon\r\n", 0},
		"IMF-fixdate": {"Retry-After: Tue, 04 Mar 2025 06:02:00 GMT\r\n", 2 * time.Minute},
		"RFC 850":     {"Retry-After: Tuesday, 04-Mar-25 06:02:00 GMT\r\n", 2 * time.Minute},
		"asctime":     {"Retry-After: Tue Mar  4 06:02:00 2025\r\n", 2 * time.Minute},
		"in the past": {"Retry-After: Tue, 04 Mar 2025 05:59:00 GMT\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{404, 408, 425, 429, 500, 503, 600} {
				require.Equal(t, c.want, hinted(t, status, c.fields).RetryAfter, "%d", status)
			}
			for _, status := range []int{200, 302, 400, 410} {
				require.Zero(t, hinted(t, status, c.fields).RetryAfter, "%d", status)
			}
		})
	}
}

// A date in a response without a Date field is compared with this machine's clock.
func TestRetryAfterWithoutTheReceiversClock(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC().Add(time.Hour).Format("Mon, 02 Jan 2006 15:04:05 GMT")
	url := "http://" + answering(t, "HTTP/1.1 503 Busy\r\nRetry-After: "+at+"\r\nContent-Length: 0\r\n\r\n")
	outcome := retry.Classify(setup(t, Config{}).Send(t.Context(), Request{URL: url}).Answer, retry.Default())
	require.InDelta(t, time.Hour, outcome.RetryAfter, float64(10*time.Second))
}
