package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestParseAge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "15m": 15 * time.Minute, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour,
		"2w": 14 * 24 * time.Hour, "1000w": 1000 * 7 * 24 * time.Hour, "500ms": 500 * time.Millisecond, "0s": 0, "0d": 0,
	} {
		got, ok := webhook.ParseAge(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "-1h", "-1d", "1.5d", "d", "h", "5", "1y", "yesterday", "1001w", "9999999d", "99999999h", " 1h", "1h ", "18446744073709551616d",
		"1d2h", "+1d", "+1h", "-0s",
	} {
		_, ok := webhook.ParseAge(text)
		require.False(t, ok, text)
	}
}
