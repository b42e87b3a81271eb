package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// rounds is how often a test runs in which a select has two ways to go.
const rounds = 10

// What comes after Stop, from who still notes what the last requests came to, stays in the outbox: nothing is sent ahead, and
// nobody waits for room.
func TestNothingIsAcceptedAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		d := New(Config{LocalWorker: true, QueueLength: 10, Ahead: func(activities.AttemptInput) bool {
			asked++
			return true
		}})
		d.room.overdraw("acme", 10)
		d.Stop()
		begun := time.Now()
		release, err := d.Reserve(t.Context(), "acme", 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(begun))
		d.Accepted(accepted(5))
		release()
		require.Zero(t, asked)
		require.Zero(t, d.Waiting())
		require.Zero(t, d.fresh.bytes)
		require.Equal(t, 10, usedBy(d, "acme"))
	})
}

// What was sent is started at the end as at any other time: each by itself where nobody shares, and who is slow is not waited
// for by others.
func TestWhatWasSentIsStartedAsEver(t *testing.T) {
	t.Parallel()
	a := accepted(6)
	for name, test := range map[string]struct {
		config      Config
		shared, own int
	}{
		"together":      {Config{}, 1, 0},
		"nobody shares": {Config{Width: 1}, 0, 6},
		"half are slow": {Config{Gate: inTrouble(a.Deliveries...)}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, client := newFrontend(t)
			test.config.Client, test.config.LocalWorker = client, true
			test.config.Ahead = func(activities.AttemptInput) bool { return true }
			d := setup(t, test.config)
			d.Accepted(a)
			d.startSent()
			shared, own := groups(t, f)
			require.Len(t, shared, test.shared)
			require.Len(t, own, test.own)
			require.ElementsMatch(t, refsOf(a.Deliveries), begunBy(t, f))
		})
	}
}

// Those who wait for company stay in the outbox, but for a start that is under way.
func TestStopLeavesTheTroubled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := newFrontend(t)
		a := accepted(6)
		d := setup(t, Config{Client: c, Width: 2, Gate: inTrouble(a.Deliveries...)})
		d.Accepted(a)
		require.Empty(t, d.gathered())
		open := f.shut()
		d.workers.Go(d.serveTroubled)
		pass(troubleWait)
		go d.Stop()
		synctest.Wait()
		open()
		synctest.Wait()
		require.Equal(t, d.Width, countBegun(t, f))
		require.Equal(t, 4, d.Waiting())
	})
}

// What others bring beside a large start is not started any more at a stop, unless it was sent.
func TestStopLeavesWhatComesBesideALargeStart(t *testing.T) {
	t.Parallel()
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			s, f, open := besideLoud(t, nil, webhook.Accepted{})
			resume := f.shut()
			s.Accepted(acceptedOf("quiet", 1))
			synctest.Wait()
			s.Accepted(acceptedOf("quiet", 1))
			go s.Stop()
			synctest.Wait()
			resume()
			synctest.Wait()
			require.Equal(t, s.Width+1, countBegun(t, f))
			open()
		})
	}
}

// looked is an outbox that counts how often it is read.
type looked struct {
	outbox

	starts, commands int
}

func (l *looked) LeftBehind(ctx context.Context, n int) ([]webhook.Start, error) {
	l.starts++
	return l.outbox.LeftBehind(ctx, n)
}

func (l *looked) Unanswered(ctx context.Context, n int) ([]webhook.Commanded, error) {
	l.commands++
	return l.outbox.Unanswered(ctx, n)
}

// What is taken from the outbox is not handed out again for a while, so nothing is at a stop.
func TestStopTakesNothingMore(t *testing.T) {
	t.Parallel()
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			f, c := newFrontend(t)
			record := &looked{outbox: outbox{starts: accepted(1).Deliveries}}
			d := setup(t, Config{Client: c, Record: record})
			open := f.shut()
			d.workers.Go(d.relay)
			pass(2 * relayEvery) // it is time to look again
			require.Equal(t, 1, record.starts)
			go d.Stop()
			synctest.Wait()
			open()
			synctest.Wait()
			require.Equal(t, 1, record.starts)
			require.Zero(t, record.commands)
			require.Equal(t, 1, countBegun(t, f))
		})
	}
}
