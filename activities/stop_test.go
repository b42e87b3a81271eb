package activities_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// stopNow stops the process without waiting for its requests.
func (p *process) stopNow() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	p.Attempts.Stop(over)
}

// R11: a request is cut off after the head of the answer was read. What was answered is recorded, so that no
// other process sends it again.
func TestStopCutsOffDuringTheBody(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, b *bundle, p *process) activities.AttemptInput{
		"of an attempt": func(t *testing.T, b *bundle, p *process) activities.AttemptInput {
			t.Helper()
			in := b.stored(t)
			later(func() (activities.AttemptResult, error) { return p.attempt(in) })
			return in
		},
		"of an eager request": func(t *testing.T, b *bundle, p *process) activities.AttemptInput {
			t.Helper()
			in := b.known(t, p)
			require.True(t, p.Eager.SendEagerly(in, &starts{}))
			return in
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			headRead := make(chan struct{})
			p := b.process(t, func(c *activities.Config) {
				c.Sender = faulty(func(ctx context.Context, _ egress.Request) egress.Response {
					close(headRead)
					<-ctx.Done()
					return egress.Response{
						Answer: retry.Answer{Status: 200, Failure: retry.FailureUnknown, ReceivedAt: time.Now()}, Err: "unknown: cancelled by the sender",
					}
				})
			})
			in := begin(t, b, p)
			<-headRead
			p.stopNow()
			d := b.delivery(t, in)
			require.Equal(t, webhook.StateDelivered, d.State)
			require.Equal(t, 1, d.Attempts)
			require.Len(t, b.attempts(t, in), 1)
		})
	}
}

// R11: the cut comes while an outcome waits to be recorded, behind the flush that is under way.
func TestStopCutsOffDuringTheRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	answered, sending, cut := make(chan struct{}), make(chan struct{}), make(chan struct{})
	cutOff, other := b.stored(t), b.stored(t)
	p := b.process(t, func(c *activities.Config) {
		sender := c.Sender
		c.Sender = faulty(func(ctx context.Context, r egress.Request) egress.Response {
			if slices.Contains(r.Header, [2]string{"everpost-delivery-id", cutOff.DeliveryID.String()}) {
				close(sending)
				<-ctx.Done()
				close(cut)
				return egress.Response{InternalFault: true, Err: "unknown: cancelled by the sender"}
			}
			defer close(answered)
			return sender.Send(ctx, r)
		})
	})
	_, err := p.Steps.RecordStep(t.Context(), note(other))
	require.NoError(t, err)
	tx, err := b.store.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from deliveries where id = $1 for update`, other.DeliveryID)
	require.NoError(t, err)
	flushed := make(chan error, 1)
	go func() {
		next := note(other)
		next.Seq++
		_, err := p.Steps.RecordStep(context.WithoutCancel(t.Context()), next)
		flushed <- err
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := b.store.Pool().QueryRow(t.Context(), `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
			and query like '%deliveries as d%'`).Scan(&waiting)
		return err == nil && waiting > 0
	}, 20*time.Second, 5*time.Millisecond)

	in := b.stored(t)
	later(func() (activities.AttemptResult, error) { return p.attempt(cutOff) })
	later(func() (activities.AttemptResult, error) { return p.attempt(in) })
	<-answered
	<-sending
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stopNow()
	}()
	<-cut
	require.NoError(t, tx.Rollback(t.Context()))
	<-stopped
	require.NoError(t, <-flushed)
	require.Equal(t, webhook.StateDelivered, b.delivery(t, in).State)
	require.Zero(t, b.delivery(t, cutOff).Attempts)
}
