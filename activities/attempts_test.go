package activities

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A shared workflow checks a running request after a while, then less and less often, and when its timeout is over, before its claim
// ends.
func TestCheckAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &Attempts{&process{reporter: &reporter{now: func() time.Time { return now }}}}
	for _, c := range []struct{ taken, timeout, pause time.Duration }{ // timeout 0: no permit yet
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
		exec := &execution{began: now.Add(-c.taken), timeout: c.timeout, admitted: make(chan struct{})}
		if c.timeout > 0 {
			close(exec.admitted)
		}
		require.Equal(t, now.Add(c.pause), a.checkAt(exec), "%+v", c)
		if 0 < c.taken && c.taken <= c.timeout {
			require.Less(t, c.taken+c.pause, c.timeout+claimSlack)
		}
	}
}

// An execution with a permit has been waited for. One without may end soon after it gets one.
func TestAwaitAdmission(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		admitted, done time.Duration // from the beginning, 0: before it
		running        bool
		takes          time.Duration
	}{
		"a permit before":        {0, time.Hour, true, 0},
		"ended before":           {0, 0, false, 0},
		"ended without a permit": {time.Hour, 0, false, 0},
		"deferred":               {time.Hour, 200 * time.Millisecond, false, 200 * time.Millisecond},
		"answered soon":          {400 * time.Millisecond, 430 * time.Millisecond, false, 430 * time.Millisecond},
		"not answered":           {400 * time.Millisecond, time.Hour, true, time.Second},
		"never a permit":         {time.Hour, time.Hour, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, began := &Attempts{&process{fastWait: time.Second}}, time.Now()
				exec := &execution{admitted: make(chan struct{}), done: make(chan struct{})}
				for at, event := range map[*time.Duration]chan struct{}{&c.admitted: exec.admitted, &c.done: exec.done} {
					if *at == 0 {
						close(event)
						continue
					}
					time.AfterFunc(*at, func() { close(event) })
				}
				require.Equal(t, c.running, a.awaitAdmission(exec))
				require.Equal(t, c.takes, time.Since(began))
			})
		})
	}
}
