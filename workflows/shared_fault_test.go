package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// An internal fault that all meet costs a timer a minute between them, however long it lasts
// and at whatever times they come to meet it; afterwards each is sent once.
func TestFaultsShareATimer(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 20)
	for i, start := range starts { // they come to meet it all over a minute
		b.receiver.Script(start.EventID.String(), waitFor(time.Duration(5+15*(i%4))*time.Second))
	}
	l := b.share(t, time.Hour, starts...)
	var local []string
	l.run(countLocal(&local), after(time.Second, func(environment) { b.refuse(-1) }), after(time.Hour, func(environment) {
		members := l.statuses()
		require.Len(t, members, len(starts))
		for _, member := range members {
			require.Contains(t, member.LastError, errAway.Message)
		}
		b.refuse(0)
	}))
	require.Zero(t, l.keepers.count())
	require.LessOrEqual(t, len(l.timers), 4+4*6+60+5, "four that begin, and soon one a minute for all")
	require.Len(t, local, len(l.timers)+1, "and as many activities")
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
	}
}
