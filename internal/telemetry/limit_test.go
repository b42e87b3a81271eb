package telemetry

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limitedLog is a limited logger whose time the test sets, and what it has written.
func limitedLog(now *time.Time) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	logger := Limit(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	logger.Handler().(*limited).kinds.now = func() time.Time { return *now }
	return logger, &out
}

// 18,000 lines of three kinds within 16 minutes become a line of each kind and minute, and their counts add up.
func TestLimit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	logger, out := limitedLog(&now)
	derived := logger.With("component", "temporal").WithGroup("g")
	const lines = 18_000
	for i := range lines {
		now = now.Add(16 * time.Minute / lines)
		switch i % 3 {
		case 0:
			logger.Warn("service failures", "n", i)
		case 1:
			derived.Error("service failures", "n", i) // of another level
		default:
			derived.Error("failed to poll", "n", i)
		}
	}
	now = now.Add(2 * time.Minute)
	logger.Info("the next line of any kind")
	written := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Less(t, len(written), 3*18+2)
	require.Greater(t, len(written), 3*15)
	left := 0
	for _, line := range written {
		if at := strings.Index(line, "unwritten="); at >= 0 {
			var n int
			_, err := fmt.Sscanf(line[at:], "unwritten=%d", &n)
			require.NoError(t, err)
			left += n
		}
	}
	require.Equal(t, lines+1, len(written)+left, "every line is written or counted")
	require.Contains(t, written[0], `level=WARN msg="service failures" n=0`)
	require.Contains(t, out.String(), "component=temporal g.n=")
}

// A message that is different each time does not fill the memory, and the others are still told apart.
func TestLimitOfManyKinds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	logger, out := limitedLog(&now)
	for i := range 10 * maxKinds {
		logger.Warn("of " + strings.Repeat("x", i)) //nolint:sloglint // as others do
	}
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), maxKinds+1)
	out.Reset()
	for i := range 100 {
		logger.Info(fmt.Sprintf("http: error from 192.0.2.1:%d", i)) //nolint:sloglint // as others do
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "numbers make no kind")
	k := logger.Handler().(*limited).kinds
	require.LessOrEqual(t, len(k.seen), maxKinds+2, "and one for each level")
	now = now.Add(2 * limitEvery)
	logger.Error("another")
	require.LessOrEqual(t, len(k.seen), 1)
}

func TestLimitIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	logger := Limit(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				logger.With("i", i).Warn("the same")
			}
		})
	}
	all.Wait()
}
