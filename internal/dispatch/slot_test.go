package dispatch

import (
	"cmp"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// gathered is what a slot takes next.
func (d *Dispatcher) gathered() []webhook.Start {
	s := slot{Dispatcher: d}
	return s.gather()
}

// While a large start of one tenant is under way, others' few are started beside it, and
// then it is its turn again.
func TestOthersStartBesideALargeStart(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	s := slot{Dispatcher: d, used: cpuTime}
	begun := func(n int) func() bool { return func() bool { return len(f.started()) == n } }
	open := f.shut()
	d.Accepted(acceptedOf("loud", d.Width))
	batch := d.gathered()
	require.Len(t, batch, d.Width)
	returned := make(chan struct{})
	d.workers.Go(func() {
		defer close(returned)
		s.beside("loud", batch)
	})
	require.Eventually(t, begun(1), 20*time.Second, time.Millisecond)
	d.Accepted(acceptedOf("loud", 2))
	quiet := acceptedOf("quiet", 1)
	d.Accepted(quiet)
	require.Eventually(t, begun(2), 20*time.Second, time.Millisecond)
	require.True(t, slices.ContainsFunc(f.started(), isStartOf(quiet.Deliveries[0].WorkflowID())))
	open()
	<-returned
	require.Len(t, d.queue.Ready, 1, "what was left there")
	require.Equal(t, []string{"loud", "loud"}, tenantsOf(d.gathered()))
	d.Stop()
	require.Equal(t, 2, usedBy(d, "loud"), "places are given back")
}

func TestCrowdedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := slot{Dispatcher: New(Config{})}
		batch := func(parts ...any) (tenants []string) {
			for i := 0; i < len(parts); i += 2 {
				for range parts[i+1].(int) {
					tenants = append(tenants, parts[i].(string))
				}
			}
			return tenants
		}
		for _, step := range []struct {
			batch []string
			want  string
			then  time.Duration
		}{
			{batch("a", 100), "", 0}, // alone
			{batch("b", 1), "", 0},
			{batch("a", 100), "a", company / 2},
			{batch("a", 100), "a", company / 2},
			{batch("a", 100), "", 0}, // the other has not been heard of for a while
			{batch("b", 1, "a", 99), "a", 0},
			{batch("a", 50, "b", 50), "", 0}, // nobody has most
			{batch("a", 49, "b", 51), "b", 0},
			{batch("c", 1, "d", 1, "a", 51), "a", 2 * company},
			{batch("b", 1, "a", 24), "a", 0},
			{batch("b", 1, "a", 23), "", 0}, // no large one
		} {
			starts := acceptedOf("", len(step.batch)).Deliveries
			for i := range starts {
				starts[i].TenantID = step.batch[i]
			}
			require.Equal(t, step.want, s.crowdedBy(starts), step.batch)
			<-time.After(step.then)
		}
		s.crowded = time.Now()
		require.Equal(t, 50, queued(&s, 100), "while the CPU is short")
		<-time.After(company)
		require.Equal(t, 100, queued(&s, 100))
		several := slot{Dispatcher: New(Config{StartSlots: 2})}
		several.crowdedBy(acceptedOf("b", 1).Deliveries)
		require.Empty(t, several.crowdedBy(acceptedOf("a", several.Width).Deliveries))
		small := slot{Dispatcher: New(Config{Width: 2*fewPart - 1})}
		small.crowdedBy(acceptedOf("b", 1).Deliveries)
		require.Empty(t, small.crowdedBy(acceptedOf("a", small.Width).Deliveries))
	})
}

// queued is how many the slot takes when n wait.
func queued(s *slot, n int) int {
	s.Accepted(acceptedOf("a", n))
	batch := s.gather()
	for range n - len(batch) {
		s.queue.Next()
	}
	return len(batch)
}

// hungry is a slot of a process that uses so many percent of the CPU.
func hungry(t *testing.T, c Config, percent int) (*slot, *frontend) {
	t.Helper()
	f, client := newFrontend(t)
	c.Client = client
	begun := time.Now()
	return &slot{Dispatcher: setup(t, c), used: func() time.Duration {
		return time.Since(begun) * time.Duration(runtime.GOMAXPROCS(0)*percent) / 100
	}}, f
}

// After a start a slot rests for as long as that took, but not for long; unless the CPU
// was not short, or there is enough for a full start, or there comes enough.
func TestASlotRestsAfterAStart(t *testing.T) {
	t.Parallel()
	const took, later = 10 * time.Millisecond, 4 * time.Millisecond
	comes := func(n int) func(*slot) { return func(s *slot) { s.Accepted(accepted(n)) } }
	for name, test := range map[string]struct {
		percent      int // of the CPU
		slots, width int
		crowded      bool
		took         time.Duration
		waits        int         // when the start is done
		meanwhile    func(*slot) // later
		rests        time.Duration
	}{
		"the CPU is short":                {percent: 40, took: took, rests: took},
		"the CPU is not short":            {percent: 30, took: took},
		"not for long":                    {percent: 100, took: 10 * maxPause, rests: maxPause},
		"several slots":                   {percent: 100, slots: 2, took: took},
		"a full start waits":              {percent: 100, took: took, waits: 20},
		"nearly a full start waits":       {percent: 100, took: took, waits: 19, rests: took},
		"it becomes full":                 {percent: 100, took: took, waits: 15, meanwhile: comes(5), rests: later},
		"it becomes nearly full":          {percent: 100, took: took, waits: 15, meanwhile: comes(4), rests: took},
		"a small one is full":             {percent: 100, crowded: true, took: took, waits: 10},
		"nearly a small one":              {percent: 100, crowded: true, took: took, waits: 9, rests: took},
		"nobody shares, and nobody comes": {percent: 100, width: 1, took: took, rests: took},
		"nobody shares":                   {percent: 100, width: 1, took: took, meanwhile: comes(1), rests: later},
		"the process stops":               {percent: 100, took: took, meanwhile: func(s *slot) { s.Stop() }, rests: later},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, f := hungry(t, Config{StartSlots: test.slots, Width: cmp.Or(test.width, 20)}, test.percent)
				if test.crowded {
					s.crowded = time.Now()
				}
				s.Accepted(accepted(1))
				<-s.queue.Ready
				batch := s.gather()
				open := f.shut()
				time.AfterFunc(test.took, func() {
					s.Accepted(accepted(test.waits))
					open()
				})
				if test.meanwhile != nil {
					time.AfterFunc(test.took+later, func() { test.meanwhile(s) })
				}
				begun := time.Now()
				s.atEase(batch)
				require.Equal(t, test.rests, time.Since(begun)-test.took)
				require.Len(t, f.started(), 1)
				require.True(t, s.queue.Len() == 0 || len(s.queue.Ready) == 1, "somebody has to be told")
			})
		})
	}
}

// A slot of which the last large start was short of CPU rests for longer, and makes
// smaller ones for a while.
func TestASlotRestsAfterALargeStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		percent     int // of the CPU
		took, rests time.Duration
	}{
		{30, 2 * maxPause, 0}, {40, 2 * maxPause, 2 * maxPause}, {100, 2 * maxRest, maxRest},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, f := hungry(t, Config{}, test.percent)
			s.Accepted(acceptedOf("loud", s.Width))
			batch := s.gather()
			<-s.queue.Ready
			time.AfterFunc(test.took, f.shut())
			begun := time.Now()
			s.beside("loud", batch)
			require.Equal(t, test.rests, time.Since(begun)-test.took)
			require.Equal(t, test.rests > 0, s.width() < s.Width)
		})
	}
}

// What comes while a slot rests shares the next start, which comes right after it.
func TestWhatComesDuringTheRestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := hungry(t, Config{}, 100)
		s.workers.Go(s.serve)
		defer s.Stop()
		time.AfterFunc(20*time.Millisecond, f.shut())
		s.Accepted(accepted(1))
		for range 3 {
			<-time.After(12 * time.Millisecond)
			s.Accepted(accepted(1))
		}
		<-time.After(3 * time.Millisecond)
		require.Len(t, f.started(), 1, "it rests")
		<-time.After(time.Millisecond)
		synctest.Wait()
		shared, own := groups(t, f)
		require.Len(t, own, 1)
		require.Len(t, shared, 1)
		require.Len(t, shared[0], 3)
	})
}

// Stop does not wait for the rest, and what came meanwhile stays in the outbox.
func TestStopEndsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := hungry(t, Config{}, 100)
		s.workers.Go(s.serve)
		time.AfterFunc(20*time.Millisecond, f.shut())
		s.Accepted(accepted(1))
		<-time.After(30 * time.Millisecond)
		s.Accepted(accepted(1))
		begun := time.Now()
		s.Stop()
		require.Zero(t, time.Since(begun))
		require.Len(t, f.started(), 1)
	})
}

// A slot that is woken and finds nothing does not take that for a start, after which it
// would be woken again.
func TestASlotIsWokenForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := hungry(t, Config{}, 100)
		measured := 0
		s.used = func() time.Duration {
			measured++
			return time.Duration(min(measured, 2)) * time.Hour
		}
		s.workers.Go(s.serve)
		s.Accepted(accepted(1))
		synctest.Wait()
		s.Stop()
		require.Len(t, f.started(), 1)
		require.Equal(t, 2, measured, "before and after a start")
	})
}

func TestIsShort(t *testing.T) {
	t.Parallel()
	all := time.Duration(runtime.GOMAXPROCS(0)) * time.Second
	require.False(t, isShort(time.Second, 0, shortPart))
	require.False(t, isShort(time.Second, all/shortPart-time.Millisecond, shortPart))
	require.True(t, isShort(time.Second, all/shortPart+time.Millisecond, shortPart))
	before := cpuTime()
	for begun := time.Now(); cpuTime() == before; { // it counts
		require.Less(t, time.Since(begun), 10*time.Second)
	}
}
