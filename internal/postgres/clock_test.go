package postgres_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// wrongBy are by how much the clocks of processes are wrong in tests.
func wrongBy() []time.Duration {
	return []time.Duration{-10 * time.Minute, -15 * time.Second, 15 * time.Second, 10 * time.Minute}
}

// An API host 15 s behind would have the relay of another host start what it is just
// starting itself; one that is ahead would leave it lying. Neither does, nor does either
// give a delivery less time than its policy.
func TestTheDatabasesClockCounts(t *testing.T) {
	t.Parallel()
	for _, by := range wrongBy() {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			wrong := b.WrongStore(t, by)
			require.InDelta(t, by.Seconds(), wrong.ClockOffset().Seconds(), 1)
			require.WithinDuration(t, time.Now(), wrong.Now(), time.Second)

			begun := time.Now()
			start := wrong.AcceptOne(t)
			storetest.RequireRelayedIn(t, b.Stores, deliveries.RelayAfter)
			early, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			require.Empty(t, early, "its process is starting it")
			require.WithinDuration(t, time.Now(), start.CreatedAt, 5*time.Second)
			require.WithinDuration(t, time.Now().Add(72*time.Hour), start.GiveUpAt, 5*time.Second)
			require.WithinDuration(t, time.Now(), start.EventID.Time(), 5*time.Second)
			require.WithinRange(t, start.ReceivedAt, begun, time.Now())
			_, oldest, err := wrong.OutboxDepth(t.Context())
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), oldest, 5*time.Second)
			_, err = b.Pool().Exec(t.Context(), `update outbox set relay_at = relay_at - interval '15 seconds'`)
			require.NoError(t, err)
			late, err := wrong.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			require.Len(t, late, 1)

			// The claim lasts equally long for each process.
			got, err := wrong.Claim(t.Context(), storetest.ClaimOf(start, 0, "wrong", 30*time.Second))
			require.NoError(t, err)
			require.True(t, got.Granted)
			for _, s := range []*storetest.Bundle{b, wrong} {
				require.NoError(t, s.Ready(t.Context()))
				refused, err := s.Claim(t.Context(), storetest.ClaimOf(start, 0, "right", 30*time.Second))
				require.NoError(t, err)
				require.False(t, refused.Granted)
				require.WithinDuration(t, s.Now().Add(30*time.Second), refused.Status.ClaimedUntil, 5*time.Second)
			}

			// An end that no attempt brought about is now.
			other := wrong.AcceptOne(t)
			_, err = wrong.RecordStep(t.Context(), storetest.StepOf(other, 1, webhook.StateDeadLettered))
			require.NoError(t, err)
			d, err := b.Delivery(t.Context(), "acme", other.DeliveryID)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), d.CompletedAt, 5*time.Second)

			// A run that a person opens has its whole time, and its process starts it.
			d, _, err = wrong.CommandOne(t, other.DeliveryID, webhook.CommandReplay)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(72*time.Hour), d.GiveUpAt, 5*time.Second)
			storetest.RequireRelayedIn(t, b.Stores, deliveries.RelayAfter)

			made := wrong.StartReplay(t, webhook.Replay{})
			forgotten, err := b.TakeReplays(t.Context(), 10)
			require.NoError(t, err)
			require.Empty(t, forgotten)
			wrong.AskReplay(t, made, webhook.ReplayCommand{Action: webhook.ReplayPause})
			require.Equal(t, []bool{true}, storetest.Query[bool](t, b.Stores,
				`select relay_at - clock_timestamp() between interval '3 seconds' and interval '8 seconds' from replays`))
		})
	}
}

// What one process accepted a moment ago and another holds is in the set of a resume.
func TestAResumeReleasesWhatAWrongClockAccepted(t *testing.T) {
	t.Parallel()
	for _, by := range wrongBy() {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			wrong := b.WrongStore(t, by)
			_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
			require.NoError(t, err)
			held := b.Hold(t, wrong.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			_, r, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 60, "")
			require.NoError(t, err)
			require.Equal(t, webhook.ReleaseRunning, r.State)
			require.Equal(t, []webhook.DeliveryID{held.DeliveryID}, storetest.StartIDs(wrong.Released(t, 10)))
			storetest.RequireRelayedIn(t, b.Stores, deliveries.RelayAfter)
		})
	}
}

// A key ends everywhere at the same time.
func TestAKeyExpiresByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for _, by := range wrongBy() {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			wrong := b.WrongStore(t, by)
			for left, expired := range map[time.Duration]bool{-5 * time.Second: true, time.Minute: false} {
				key := storetest.TestKey("acme")
				key.ExpiresAt = time.Now().Add(left)
				require.NoError(t, b.CreateKey(t.Context(), storetest.TestActor(), key))
				_, err := wrong.Authenticate(t.Context(), key.ID, key.SHA256)
				require.Equal(t, expired, err != nil, "%s left: %v", left, err)
			}
		})
	}
}

// What is known of the database's clock is kept as long as it may be true, and moved no
// further than it has to be.
func TestClockLearns(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	local := begun
	c := postgres.NewClock(func() time.Time { return local }, slog.New(slog.DiscardHandler))
	at := begun.Add
	look := func(sent, database, received time.Duration) {
		local = at(received)
		c.Learn(at(sent), at(database).Round(0), local)
	}
	is := func(d time.Duration) {
		t.Helper()
		require.WithinDuration(t, at(d), c.Now(), 0)
	}
	is(0)
	look(0, 10*time.Millisecond, 20*time.Millisecond)
	is(20 * time.Millisecond) // it may be right

	look(time.Second, time.Minute, time.Second+4*time.Millisecond)
	is(time.Minute) // it is a minute ahead, at least
	local = local.Add(time.Second)
	is(time.Minute + time.Second) // and goes on

	look(3*time.Second, time.Minute+time.Second, 3*time.Second+10*time.Millisecond)
	is(time.Minute + time.Second + 10*time.Millisecond) // it was stepped back
}

// A batch of a process whose clock is wrong keeps the order of its events.
func TestShiftedIDsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.Zero(t, b.Clock().IDShift(), "the test's own machine has the right time")
	now := time.Now()
	b.Clock().At.Store(&postgres.Reading{Local: now, Database: now.Add(-15 * time.Second).UTC().Round(0)})
	require.InDelta(t, -15, b.Clock().IDShift().Seconds(), 0.5)
	batch := webhook.NewBatch{TenantID: "acme"}
	for range 100 {
		batch.Events = append(batch.Events, storetest.NewEvent("order.paid"))
	}
	all, err := b.AcceptBatch(t.Context(), batch)
	require.NoError(t, err)
	require.WithinDuration(t, b.Now(), all[0].Event.ID.Time(), 5*time.Second)
	for i := range all[1:] {
		require.Less(t, all[i].Event.ID.String(), all[i+1].Event.ID.String())
	}
}
