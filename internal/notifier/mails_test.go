package notifier

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPause(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		0: time.Minute, 1: 2 * time.Minute, 5: 32 * time.Minute, 6: time.Hour, 7: time.Hour, 1_000_000: time.Hour,
	} {
		require.Equal(t, want, pause(failures), failures)
	}
	require.Greater(t, lease, mailsAtOnce*20*time.Second)
}
