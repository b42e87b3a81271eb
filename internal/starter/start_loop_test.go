package starter

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// gathered is what a start loop takes next.
func (d *Starter) gathered() []webhook.Start {
	s := startLoop{Starter: d}
	return s.nextBatch()
}

// concurrentStart returns a start loop that makes a large start of the tenant dominant until open is called. The starts of other
// tenants are answered at once.
func concurrentStart(t *testing.T) (s *startLoop, f *frontend, open func()) {
	t.Helper()
	f, client := newFrontend(t)
	s = &startLoop{Starter: setup(t, Config{Client: client})}
	s.latest = tenantStart{"quiet", time.Now()}
	open = f.shut()
	s.Accepted(acceptedOf("dominant", s.width))
	s.workers.Go(s.run)
	synctest.Wait()
	f.shut()()
	require.Equal(t, s.width, countBegun(t, f))
	return s, f, open
}

// While a large start of one tenant is under way, a few deliveries of other tenants are started concurrently; what that tenant has
// queued waits.
func TestConcurrentStarts(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	s := startLoop{Starter: d}
	initialProgress := func(n int) func() bool { return func() bool { return len(f.started()) == n } }
	open := f.shut()
	d.Accepted(acceptedOf("dominant", d.width))
	batch := d.gathered()
	require.Len(t, batch, d.width)
	returned := make(chan struct{})
	d.workers.Go(func() {
		defer close(returned)
		s.startConcurrently("dominant", batch)
	})
	require.Eventually(t, initialProgress(1), 20*time.Second, time.Millisecond)
	d.Accepted(acceptedOf("dominant", 2))
	quiet := acceptedOf("quiet", 1)
	d.Accepted(quiet)
	require.Eventually(t, initialProgress(2), 20*time.Second, time.Millisecond)
	require.True(t, slices.ContainsFunc(f.started(), isStartOf(quiet.Deliveries[0].WorkflowID())))
	open()
	<-returned
	require.Len(t, d.queue.Ready, 1, "what was left there")
	require.Equal(t, []string{"dominant", "dominant"}, tenantsOf(d.gathered()))
	d.Stop()
	require.Equal(t, 2, d.permits.Held("dominant"), "permits are released")
}

func TestDominantTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startLoop{Starter: New(Config{})}
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
			{batch("a", 100), "a", recentStart / 2},
			{batch("a", 100), "a", recentStart / 2},
			{batch("a", 100), "", 0}, // the other has not been heard of for a while
			{batch("b", 1, "a", 99), "a", 0},
			{batch("a", 50, "b", 50), "", 0}, // no tenant has most
			{batch("a", 49, "b", 51), "b", 0},
			{batch("c", 1, "d", 1, "a", 51), "a", 2 * recentStart},
			{batch("b", 1, "a", 24), "a", 0},
			{batch("b", 1, "a", 23), "", 0}, // no large one
		} {
			starts := acceptedOf("", len(step.batch)).Deliveries
			for i := range starts {
				starts[i].TenantID = step.batch[i]
			}
			require.Equal(t, step.want, s.dominantTenant(starts), step.batch)
			<-time.After(step.then)
		}
		several := startLoop{Starter: New(Config{StartLoops: 2})}
		several.dominantTenant(acceptedOf("b", 1).Deliveries)
		require.Empty(t, several.dominantTenant(acceptedOf("a", several.width).Deliveries))
		small := startLoop{Starter: New(Config{Width: 2*smallPart - 1})}
		small.dominantTenant(acceptedOf("b", 1).Deliveries)
		require.Empty(t, small.dominantTenant(acceptedOf("a", small.width).Deliveries))
	})
}
