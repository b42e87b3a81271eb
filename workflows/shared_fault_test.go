package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
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

// R3, R5: a cancel of a delivery whose outcome could not be recorded records that first. The delivery stays in its workflow, which carries the
// cancel out.
func TestACancelAfterAnOutcomeThatCouldNotBeRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 2)
	for _, start := range starts {
		b.receiver.Script(start.EventID.String(), busyStep)
	}
	l := b.share(t, time.Hour, starts...)
	refuse := func(s webhook.Step) error {
		if s.Attempt != nil {
			return errAway
		}
		return nil
	}
	b.record.onRecord.Store(&refuse)
	l.run(after(500*time.Millisecond, func(env environment) {
		b.failNext(0)
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{Reason: "enough", DeliveryID: starts[1].DeliveryID})
	}))
	l.stayed(starts[0], webhook.StateDelivered, 2)
	require.Equal(t, "enough", l.stayed(starts[1], webhook.StateCancelled, 1).Reason)
}
