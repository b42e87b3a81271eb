package retry_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()

	const forever = time.Duration(math.MaxInt64)
	table := []struct {
		field, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"1", "", time.Second},
		{"120", "", 2 * time.Minute},
		{" \t120 \t", "", 2 * time.Minute},
		{"000120", "", 2 * time.Minute},
		{"9223372036", "", 9223372036 * time.Second},
		{"9223372037", "", forever},
		{"18446744073709551617", "", forever}, // 2^64 + 1
		{strings.Repeat("9", 5000), "", forever},
		{strings.Repeat("9", 5000) + "x", "", 0},
		{"-1", "", 0},
		{"+1", "", 0},
		{"1.5", "", 0},
		{"1e3", "", 0},
		{"0x10", "", 0},
		{"1 2", "", 0},
		{"120, 60", "", 0},
		{"120;", "", 0},
		{"١٢٠", "", 0},
		{"soon", "", 0},
		{"NaN", "", 0},
		{"\x00120", "", 0},

		// The three forms, relative to the local clock.
		{"Tue, 04 Mar 2025 05:06:37 GMT", "", 30 * time.Second},
		{"Tuesday, 04-Mar-25 05:06:37 GMT", "", 30 * time.Second},
		{"Tue Mar  4 05:06:37 2025", "", 30 * time.Second},
		{"  Tue, 04 Mar 2025 05:06:37 GMT\t", "", 30 * time.Second},

		// The same relative to the answer's clock, which is an hour ahead, in each form.
		{"Tue, 04 Mar 2025 06:06:37 GMT", "Tue, 04 Mar 2025 06:06:07 GMT", 30 * time.Second},
		{"Tue, 04 Mar 2025 06:06:37 GMT", "Tuesday, 04-Mar-25 06:06:07 GMT", 30 * time.Second},
		{"Tue, 04 Mar 2025 06:06:37 GMT", "Tue Mar  4 06:06:07 2025", 30 * time.Second},
		{"Tue, 04 Mar 2025 05:06:37 GMT", "rubbish", 30 * time.Second},
		{"45", "Tue, 04 Mar 2025 06:06:07 GMT", 45 * time.Second},

		// Not in the future.
		{"Tue, 04 Mar 2025 05:06:07 GMT", "", 0},
		{"Tue, 04 Mar 2025 05:06:06 GMT", "", 0},
		{"Thu, 01 Jan 1970 00:00:00 GMT", "", 0},
		{"Tue, 04 Mar 2025 05:07:00 GMT", "Tue, 04 Mar 2025 06:06:07 GMT", 0},

		// Far in the future: saturates.
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", forever},

		// The century of RFC 850: 2074 is less than 50 years ahead; 2076 is more than 50
		// years ahead and becomes 1976.
		{"Sunday, 04-Mar-74 05:06:07 GMT", "", time.Date(2074, 3, 4, 5, 6, 7, 0, time.UTC).Sub(received())},
		{"Wednesday, 04-Mar-76 05:06:07 GMT", "", 0},

		// Not an HTTP-date.
		{"Tue, 04 Mar 2025 05:06:37 CET", "", 0},
		{"Tue, 04 Mar 2025 05:06:37 +0000", "", 0},
		{"2025-03-04T05:06:37Z", "", 0},
		{"Tue, 32 Mar 2025 05:06:37 GMT", "", 0},
		{"Tue, 04 Mar 2025 25:06:37 GMT", "", 0},
	}
	for _, row := range table {
		for _, status := range []int{429, 503, 404, 100} {
			got := retry.Classify(retry.Answer{
				Status: status, RetryAfter: row.field, Date: row.date, ReceivedAt: received(),
			}, retry.Default())
			require.Equal(t, row.want, got.RetryAfter, "%.60q with Date %q", row.field, row.date)
		}
		for _, status := range []int{200, 302, 400, 410} {
			got := retry.Classify(retry.Answer{
				Status: status, RetryAfter: row.field, Date: row.date, ReceivedAt: received(),
			}, retry.Default())
			require.Zero(t, got.RetryAfter)
		}
	}
}

func TestRetryAfterWithoutAnyClock(t *testing.T) {
	t.Parallel()

	got := retry.Classify(retry.Answer{Status: 503, RetryAfter: "Tue, 04 Mar 2025 05:06:37 GMT"}, retry.Default())
	require.Zero(t, got.RetryAfter)
}

// FuzzRetryAfter compares the result with net/http's where that is as strict, and checks that
// it is never negative.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "0", "120", " 7 ", "-1", "1e9", "99999999999999999999", "Tue, 04 Mar 2025 05:06:37 GMT",
		"Tuesday, 04-Mar-25 05:06:37 GMT", "Tue Mar  4 05:06:37 2025", "Fri, 31 Dec 9999 23:59:59 GMT",
	} {
		f.Add(seed, "")
		f.Add("120", seed)
		f.Add("Tue, 04 Mar 2025 05:06:37 GMT", seed)
	}
	f.Fuzz(func(t *testing.T, field, date string) {
		answer := retry.Answer{
			Status: 429, RetryAfter: field, Date: date, ReceivedAt: received(),
			RateLimitRemaining: "0", RateLimitReset: field, RateLimit: date,
		}
		got := retry.Classify(answer, retry.Default())
		require.GreaterOrEqual(t, got.RetryAfter, time.Duration(0))
		require.GreaterOrEqual(t, got.PaceFor, time.Duration(0))
		require.Equal(t, retry.Retry, got.Decision)

		trimmed := strings.Trim(field, " \t\r\n")
		if seconds, err := strconv.ParseUint(trimmed, 10, 32); err == nil {
			require.Equal(t, time.Duration(seconds)*time.Second, got.RetryAfter)
			return
		}
		if got.RetryAfter > 0 && strings.Trim(trimmed, "0123456789") != "" {
			_, err := http.ParseTime(trimmed)
			require.NoError(t, err, "neither seconds nor a date: %q", field)
		}
	})
}
