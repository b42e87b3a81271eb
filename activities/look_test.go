package activities

import (
	"testing"
	"testing/synctest"
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

// Who has been let through has been waited for. Who has not may be answered soon when it is.
func TestAwaitPassage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		passed, done time.Duration // from the beginning, 0: before it
		goesOn       bool
		takes        time.Duration
	}{
		"let through before":           {0, time.Hour, true, 0},
		"ended before":                 {0, 0, false, 0},
		"ended, and never let through": {time.Hour, 0, false, 0},
		"turned away":                  {time.Hour, 200 * time.Millisecond, false, 200 * time.Millisecond},
		"answered soon":                {400 * time.Millisecond, 430 * time.Millisecond, false, 430 * time.Millisecond},
		"not answered":                 {400 * time.Millisecond, time.Hour, true, time.Second},
		"never let through":            {time.Hour, time.Hour, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, begun := &Activities{Config: Config{FastWait: time.Second}}, time.Now()
				fl := &flight{passed: make(chan struct{}), done: make(chan struct{})}
				for at, event := range map[*time.Duration]chan struct{}{&c.passed: fl.passed, &c.done: fl.done} {
					if *at == 0 {
						close(event)
						continue
					}
					time.AfterFunc(*at, func() { close(event) })
				}
				require.Equal(t, c.goesOn, a.awaitPassage(fl))
				require.Equal(t, c.takes, time.Since(begun))
			})
		})
	}
}
