package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that goes on is asked for again a while later, then more and more seldom, and
// when its time is over: before the right to send it ends.
func TestLookAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &Activities{Config: Config{Now: func() time.Time { return now }}}
	for _, c := range []struct{ taken, timeout, pause time.Duration }{ // timeout 0: not let through yet
		{0, 0, 4 * time.Second},
		{time.Second, 0, 4 * time.Second},
		{24 * time.Hour, 0, 4 * time.Second},
		{0, 30 * time.Second, 4 * time.Second},
		{time.Second, 30 * time.Second, 4 * time.Second},
		{5 * time.Second, 30 * time.Second, 5 * time.Second},
		{10 * time.Second, 30 * time.Second, 10 * time.Second},
		{17 * time.Second, 30 * time.Second, 14 * time.Second},
		{29 * time.Second, 30 * time.Second, 2 * time.Second},
		{30 * time.Second, 30 * time.Second, time.Second},
		{24 * time.Hour, 30 * time.Second, time.Second},
		{time.Second, 2 * time.Second, 2 * time.Second},
	} {
		fl := &flight{begun: now.Add(-c.taken), timeout: c.timeout, passed: make(chan struct{})}
		if c.timeout > 0 {
			close(fl.passed)
		}
		require.Equal(t, now.Add(c.pause), a.lookAt(fl), "%+v", c)
		if 0 < c.taken && c.taken <= c.timeout {
			require.Less(t, c.taken+c.pause, c.timeout+claimSlack)
		}
	}
}
