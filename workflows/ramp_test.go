package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

func TestRamp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name              string
		rate, ceiling     int
		delivered, failed int64
		over              time.Duration
		want              verdict
	}{
		{"all delivered", 100, 60_000, 100, 0, time.Minute, verdict{rate: 200, judged: true}},
		{"95 % delivered", 100, 60_000, 95, 5, time.Minute, verdict{rate: 200, judged: true}},
		{"94 % delivered", 100, 60_000, 94, 6, time.Minute, verdict{rate: 100, judged: true}},
		{"80 % delivered", 100, 60_000, 80, 20, time.Minute, verdict{rate: 100, judged: true}},
		{"79 % delivered", 100, 60_000, 79, 21, time.Minute, verdict{rate: 50, judged: true}},
		{"half delivered", 100, 60_000, 50, 50, time.Minute, verdict{rate: 50, judged: true}},
		{"less than half", 100, 60_000, 49, 51, time.Minute, verdict{rate: 100, pause: true, judged: true}},
		{"the minute is not over", 100, 60_000, 99, 0, time.Minute - 1, verdict{rate: 100}},
		{"not over, and too few delivered", 100, 60_000, 60, 40, time.Minute - 1, verdict{rate: 100}},
		{"not over, and unhealthy", 100, 60_000, 9, 11, time.Second, verdict{rate: 100, pause: true, judged: true}},
		{"too few to say", 100, 60_000, 0, 19, time.Hour, verdict{rate: 100}},
		{"just enough to say", 10, 60_000, 20, 0, 2 * time.Minute, verdict{rate: 20, judged: true}},
		{"the ceiling", 100, 150, 100, 0, time.Minute, verdict{rate: 150, judged: true}},
		{"at the ceiling", 150, 150, 150, 0, time.Minute, verdict{rate: 150, judged: true}},
		{"above the ceiling", 150, 100, 150, 0, time.Minute, verdict{rate: 150, judged: true}}, // not judge's business
		{"slowest", 1, 60_000, 15, 5, 20 * time.Minute, verdict{rate: 1, judged: true}},
		{"odd", 3, 60_000, 15, 6, 7 * time.Minute, verdict{rate: 1, judged: true}},
		{"the rate is not made use of", 1000, 60_000, 100, 0, time.Minute, verdict{rate: 1000, judged: true}},
		{"half of it is", 200, 60_000, 100, 0, time.Minute, verdict{rate: 400, judged: true}},
	} {
		s := sample{rate: test.rate, ceiling: test.ceiling, delivered: test.delivered, failed: test.failed, over: test.over}
		require.Equal(t, test.want, s.judge(), test.name)
	}
}

func TestRampProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sample{
			rate: rapid.IntRange(1, webhook.MaxReplayRate).Draw(t, "rate"), ceiling: rapid.IntRange(1, webhook.MaxReplayRate).Draw(t, "ceiling"),
			delivered: rapid.Int64Range(0, 1_000_000).Draw(t, "delivered"), failed: rapid.Int64Range(0, 1_000_000).Draw(t, "failed"),
			over: time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "over")),
		}
		v, all := s.judge(), s.delivered+s.failed
		require.GreaterOrEqual(t, v.rate, 1)
		require.LessOrEqual(t, v.rate, 2*s.rate)
		require.LessOrEqual(t, v.rate, max(s.rate, s.ceiling), "never above the ceiling by its own doing")
		require.GreaterOrEqual(t, 2*v.rate+1, s.rate, "at most halved")
		require.Equal(t, v.pause, all >= rampSample && 2*s.delivered < all)
		if !v.judged {
			require.Equal(t, s.rate, v.rate, "what is not judged changes nothing")
		}
		if v.rate > s.rate {
			require.GreaterOrEqual(t, 100*s.delivered, 95*all)
			require.GreaterOrEqual(t, s.over, time.Minute)
		}
		better := s
		better.delivered, better.failed = s.delivered+min(s.failed, 1), max(s.failed-1, 0)
		if !v.pause {
			require.False(t, better.judge().pause)
			require.GreaterOrEqual(t, better.judge().rate, v.rate, "a better outcome never slows it down")
		}
	})
}

// Whatever the rate and however late the timers, no more is released than it allows,
// and no less but for what was slept through.
func TestPaceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, webhook.MaxReplayRate).Draw(t, "rate")
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		next, now, released, slept := start, start, 0, time.Duration(0)
		for _, late := range rapid.SliceOfN(rapid.Int64Range(0, int64(5*time.Second)), 1, 60).Draw(t, "late") {
			if next.After(now) {
				now = next
			}
			now = now.Add(time.Duration(late))
			slept += max(now.Sub(next)-releaseLate, 0)
			n := due(next, now, rate)
			require.Positive(t, n)
			require.LessOrEqual(t, n, releaseMost)
			next = following(next, now, rate, n)
			released += n
			allowed := 1 + int(now.Sub(start)/interval(rate))
			require.LessOrEqual(t, released, allowed)
			if n < releaseMost {
				require.True(t, next.After(now), "nothing more is due")
			}
		}
		if interval(rate)*releaseMost > releaseLate {
			require.GreaterOrEqual(t, released+1, int((now.Sub(start)-slept)/interval(rate)))
		}
	})
	require.Zero(t, due(time.Unix(10, 0), time.Unix(9, 0), 100))
}
