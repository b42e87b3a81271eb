package dispatch

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// A first request is sent ahead of its workflow unless others for its endpoint wait for
// theirs, or its time has not come.
func TestSentAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := accepted(4)
		for i := range a.Deliveries[:3] {
			a.Deliveries[i].EndpointID = a.Deliveries[0].EndpointID
		}
		var asked []activities.AttemptInput
		sends := false
		g := doorman{turn: map[webhook.EndpointID]time.Duration{}}
		d := New(Config{LocalWorker: true, Gate: g, Ahead: func(in activities.AttemptInput) bool {
			asked = append(asked, in)
			return sends
		}})
		accept := func(start webhook.Start) {
			asked = nil
			d.Accepted(webhook.Accepted{Deliveries: []webhook.Start{start}, Payload: a.Payload, SHA256: a.SHA256})
		}
		first, second, third, other := a.Deliveries[0], a.Deliveries[1], a.Deliveries[2], a.Deliveries[3]

		accept(first)
		require.Len(t, asked, 1, "and is refused")
		require.Equal(t, activities.AttemptInput{
			Ref: first.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: first.GiveUpAt}, FirstTask: true,
		}, asked[0])
		sends = true
		accept(second)
		require.Empty(t, asked, "the first one waits")
		accept(other)
		require.Len(t, asked, 1, "but not for this")
		require.Equal(t, 2, d.behind.len())
		got := d.gathered()
		require.Equal(t, []bool{false, false, true}, []bool{got[0].Sent, got[1].Sent, got[2].Sent})
		require.Zero(t, d.behind.len())
		accept(third)
		require.Len(t, asked, 1, "they are being started")
		require.True(t, d.gathered()[0].Sent)

		// What waits for its turn is still before what comes.
		g.turn[first.EndpointID] = troubleWait
		sends = false
		accept(first)
		require.Len(t, asked, 1)
		require.Empty(t, d.gathered())
		sends = true
		accept(second)
		require.Empty(t, asked)
		d.workers.Go(d.serveEarly)
		<-time.After(earlyLook)
		synctest.Wait()
		delete(g.turn, first.EndpointID)
		accept(third)
		require.Empty(t, asked, "it is back in the queue")
		require.Len(t, d.gathered(), 3)
		require.Zero(t, d.behind.len())

		later := first
		later.NotBefore = time.Now().Add(time.Hour)
		accept(later)
		require.Empty(t, asked)
		d.Stop()
	})
}

// What was sent is started like any other, whatever has become of its endpoint since.
func TestWhatWasSentIsNotSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := accepted(1)
		d := New(Config{LocalWorker: true, Gate: inTrouble(a.Deliveries...), Ahead: func(activities.AttemptInput) bool { return true }})
		d.Accepted(a)
		require.Len(t, d.gathered(), 1)
	})
}

// What was sent is not left to the relay, which does not find it in the outbox any more; and
// nothing is sent that might find no place in the queue.
func TestWhatWasSentIsNeverLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		d := New(Config{LocalWorker: true, QueueLength: 2, Ahead: func(activities.AttemptInput) bool {
			asked++
			return true
		}})
		d.Accepted(accepted(3))
		require.Equal(t, 2, asked)
		<-time.After(2 * queueTime)
		require.Len(t, d.gathered(), 2)
		require.Zero(t, d.queue.Len())

		d.Accepted(accepted(1))
		d.away.Store(true)
		require.Empty(t, d.gathered(), "there is nobody to start it")
	})
}

// Before it stops, a slot starts what was sent, which is not in the outbox any more.
func TestWhatWasSentIsStartedAtTheEnd(t *testing.T) {
	t.Parallel()
	f, client := newFrontend(t)
	sent := false
	d := setup(t, Config{Client: client, LocalWorker: true, Ahead: func(activities.AttemptInput) bool {
		sent = !sent
		return sent
	}})
	a := accepted(6)
	d.Accepted(a)
	d.mu.Lock()
	close(d.stopped)
	d.mu.Unlock()
	d.serve()
	shared, own := groups(t, f)
	var started []webhook.Ref
	for _, group := range shared {
		for _, delivery := range group {
			started = append(started, delivery.Ref)
		}
	}
	for _, one := range own {
		started = append(started, one.Ref)
	}
	all := refsOf(a.Deliveries)
	require.Subset(t, started, []webhook.Ref{all[0], all[2], all[4]})
}

// What finds no place in the queue keeps nobody behind it, and no more does what is left to the relay.
func TestNobodyIsBehindWhatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{QueueLength: 1})
		d.Accepted(accepted(40))
		require.Equal(t, d.queue.Len(), d.behind.len())
		require.Less(t, d.queue.Len(), 40)
		<-time.After(queueTime)
		require.Empty(t, d.gathered())
		require.Zero(t, d.behind.len())
		require.Empty(t, d.behind.of)
	})
}

// As long as all that waits has been sent, a slot rests for longer where the CPU is short.
func TestASlotRestsLongerForNobody(t *testing.T) {
	t.Parallel()
	const took, later = 10 * time.Millisecond, 20 * time.Millisecond
	for name, test := range map[string]struct {
		percent int // of the CPU, for a while
		comes   bool
		sent    bool
		rests   time.Duration
	}{
		"nobody comes":         {percent: 30, rests: sentPause},
		"one that was sent":    {percent: 30, comes: true, sent: true, rests: sentPause},
		"one that was not":     {percent: 30, comes: true, rests: later},
		"the CPU is not short": {percent: 20, comes: true, sent: true, rests: took},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := true
				s, f := hungry(t, Config{LocalWorker: true, Ahead: func(activities.AttemptInput) bool { return sent }}, 100)
				s.load.measure(time.Now(), 0)
				<-time.After(loadTime)
				all := time.Duration(runtime.GOMAXPROCS(0)) * loadTime
				s.load.measure(time.Now(), all*time.Duration(test.percent)/100)
				s.Accepted(accepted(1))
				<-s.queue.Ready
				batch := s.gather()
				open := f.shut()
				time.AfterFunc(took, open)
				if test.comes {
					time.AfterFunc(took+later, func() {
						sent = test.sent
						s.Accepted(accepted(1))
					})
				}
				begun := time.Now()
				s.atEase(batch)
				require.Equal(t, test.rests, time.Since(begun)-took)
			})
		})
	}
}
