package fair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// call is a call of Acquire.
type call struct {
	cancel context.CancelFunc
	result chan bool
}

func (c *call) answer() (granted, answered bool) {
	select {
	case granted = <-c.result:
		return granted, true
	default:
		return false, false
	}
}

// modelShare is what the model knows of a tenant.
type modelShare struct {
	held, overdraft int
	waiting         []*call
	turn            int
}

// model is a semaphore without any data structure: which tenant may have a permit, and which is next.
type model struct {
	size      int
	threshold func(free int) int
	tenants   map[string]*modelShare
	clock     int
}

func (m *model) tick() int {
	m.clock++
	return m.clock
}

func (m *model) free() int {
	free := m.size
	for _, of := range m.tenants {
		free -= of.held - of.overdraft
	}
	return free
}

func (m *model) may(of *modelShare) bool { return of.held < m.threshold(m.free()) }

// next is the waiting tenant that gets a permit now: of those that may, the one that holds the fewest, and
// among equals the one whose turn is the longest ago. Nil when none may.
func (m *model) next() *modelShare {
	var all []*modelShare
	for _, of := range m.tenants {
		if len(of.waiting) > 0 && m.may(of) {
			all = append(all, of)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *modelShare) int { return cmp.Or(cmp.Compare(a.held, b.held), cmp.Compare(a.turn, b.turn)) })
}

// draw returns a semaphore and its model.
func draw(t *rapid.T) (*Semaphore, *model) {
	size := rapid.IntRange(1, 8).Draw(t, "size")
	m := &model{size: size, tenants: map[string]*modelShare{}}
	for _, tenant := range []string{"a", "b", "c", "d"} {
		m.tenants[tenant] = &modelShare{}
	}
	if rapid.Bool().Draw(t, "dynamic") {
		factor := rapid.SampledFrom([]int{1, 2, size}).Draw(t, "factor")
		m.threshold = func(free int) int { return factor * free }
		return NewDynamic(size, factor), m
	}
	perTenant := rapid.IntRange(1, size).Draw(t, "per tenant")
	m.threshold = func(free int) int {
		if free == 0 {
			return 0
		}
		return perTenant
	}
	return NewCapped(size, perTenant), m
}

// The semaphore, against a model: permits go to the tenant that holds the fewest, within a tenant in the
// order of the calls; none gets more than there is or than its threshold; none is lost, whatever is
// cancelled or overdrawn, and nothing is kept of a tenant that holds nothing.
func TestSemaphoreModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A bubble's clock has no deadline of the test, for which rapid would ask.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			s, m := draw(t)
			defer func() { // also when it fails
				for _, of := range m.tenants {
					for _, c := range of.waiting {
						c.cancel()
					}
				}
				synctest.Wait()
			}()
			draw := func(t *rapid.T) (string, *modelShare) {
				tenant := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant")
				return tenant, m.tenants[tenant]
			}
			grant := func() {
				for of := m.next(); of != nil; of = m.next() {
					granted, answered := of.waiting[0].answer()
					require.True(t, granted && answered, "the first waiter was passed over")
					of.waiting = of.waiting[1:]
					of.held++
					of.turn = m.tick()
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"acquire": func(t *rapid.T) {
					tenant, of := draw(t)
					ctx, cancel := context.WithCancel(context.Background())
					c := &call{cancel: cancel, result: make(chan bool, 1)}
					go func() { c.result <- s.Acquire(ctx, tenant, 1, time.Hour) }()
					synctest.Wait()
					if len(of.waiting) == 0 {
						of.turn = m.tick()
					}
					of.waiting = append(of.waiting, c)
					grant()
				},
				"try": func(t *rapid.T) {
					tenant, of := draw(t)
					want := len(of.waiting) == 0 && m.may(of)
					require.Equal(t, want, s.TryAcquire(tenant))
					if want {
						of.held++
					}
				},
				"cancel": func(t *rapid.T) {
					_, of := draw(t)
					if len(of.waiting) == 0 {
						t.Skip("none waits")
					}
					i := rapid.IntRange(0, len(of.waiting)-1).Draw(t, "which")
					of.waiting[i].cancel()
					synctest.Wait()
					granted, answered := of.waiting[i].answer()
					require.True(t, answered)
					require.False(t, granted)
					of.waiting = slices.Delete(of.waiting, i, i+1)
				},
				"overdraw": func(t *rapid.T) {
					tenant, of := draw(t)
					n := rapid.IntRange(1, 3).Draw(t, "n")
					s.Overdraw(tenant, n)
					for range n {
						if !m.may(of) {
							of.overdraft++
						}
						of.held++
					}
				},
				"release": func(t *rapid.T) {
					tenant, of := draw(t)
					if of.held == 0 {
						t.Skip("it holds nothing")
					}
					n := rapid.IntRange(1, of.held).Draw(t, "n")
					s.Release(tenant, n)
					synctest.Wait()
					of.overdraft = max(0, of.overdraft-n)
					of.held -= n
					grant()
				},
				"": func(t *rapid.T) { check(t, s, m) },
			})
		})
	})
}

func check(t *rapid.T, s *Semaphore, m *model) {
	remembered, waiting := 0, 0
	for tenant, of := range m.tenants {
		require.Equal(t, of.held, s.Held(tenant), tenant)
		if of.held == 0 && len(of.waiting) == 0 {
			continue
		}
		remembered++
		require.Equal(t, of.overdraft, s.tenants[tenant].overdraft, tenant)
		require.Equal(t, len(of.waiting), s.tenants[tenant].waiters.Len(), tenant)
		if len(of.waiting) > 0 {
			waiting++
			require.True(t, of.held > 0 || m.free() == 0, "a tenant without a permit waits only when none is free")
		}
		for _, c := range of.waiting {
			_, answered := c.answer()
			require.False(t, answered, "none was free")
		}
	}
	require.Equal(t, remembered, s.Tenants())
	require.Len(t, s.waiting, waiting)
	require.GreaterOrEqual(t, m.free(), 0, "there are no more than the size")
	require.Equal(t, m.size-m.free(), s.InUse())
}

func TestSemaphoreTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewDynamic(1, 1)
		require.True(t, s.TryAcquire("a"))
		for _, tenant := range []string{"a", "b"} {
			begun := time.Now()
			require.False(t, s.Acquire(t.Context(), tenant, 1, time.Second))
			require.Equal(t, time.Second, time.Since(begun))
			time.AfterFunc(time.Second/2, func() { s.Release("a", 1) })
			begun = time.Now()
			require.True(t, s.Acquire(t.Context(), tenant, 1, time.Second))
			require.Equal(t, time.Second/2, time.Since(begun))
			require.Equal(t, 1, s.InUse())
			s.Release(tenant, 1)
			require.Zero(t, s.Tenants())
			require.True(t, s.TryAcquire("a"))
		}
	})
}

// The tenant that holds the fewest is next, and among equals the one that got its last permit first.
func TestSemaphoreOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewDynamic(9, 9)
		for tenant, n := range map[string]int{"a": 2, "b": 3, "c": 4} {
			for range n {
				require.True(t, s.TryAcquire(tenant))
			}
		}
		granted := make(chan string, 8)
		for _, tenant := range []string{"a", "a", "a", "b", "b", "b"} {
			go func() {
				if s.Acquire(t.Context(), tenant, 1, time.Hour) {
					granted <- tenant
				}
			}()
			synctest.Wait()
		}
		for i, want := range []string{"a", "b", "a", "b"} {
			s.Release("c", 1)
			require.Equal(t, want, <-granted, i)
		}
		s.Release("a", 2)
		require.ElementsMatch(t, []string{"a", "b"}, []string{<-granted, <-granted})
	})
}

// What tenants get that want all permits, one after the other.
func TestSemaphoreThresholds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		s    *Semaphore
		want []int // of the first, second and third tenant
	}{
		"as many as are free":          {NewDynamic(1000, 1), []int{500, 250, 125}},
		"three times as many":          {NewDynamic(1000, 3), []int{750, 187, 46}},
		"all that are free":            {NewDynamic(1000, 1000), []int{1000, 0, 0}},
		"at most 400":                  {NewCapped(1000, 400), []int{400, 400, 200}},
		"all, and none is left for it": {NewCapped(8, 8), []int{8, 0, 0}},
	} {
		for i, most := range test.want {
			got := 0
			for test.s.TryAcquire(fmt.Sprint("t", i)) {
				got++
			}
			require.InDelta(t, most, got, 1, "%s, tenant %d", name, i)
		}
	}
}

// However much a tenant has overdrawn, another gets a permit at once, and the first has to return its
// overdraft before it gets the next.
func TestSemaphoreOverdraft(t *testing.T) {
	t.Parallel()
	s := NewDynamic(10, 1)
	s.Overdraw("a", 1000)
	require.Equal(t, 5, s.InUse())
	require.True(t, s.TryAcquire("b"))
	require.False(t, s.TryAcquire("a"))
	s.Release("a", 995)
	require.Equal(t, 6, s.InUse(), "only the overdraft was returned")
	require.False(t, s.TryAcquire("a"), "a holds five, and four are free")
	s.Release("a", 1)
	require.True(t, s.TryAcquire("a"))
}

// An Acquire of several counts as all of them from when it is granted: of many that wait, one is granted
// when one permit is free.
func TestSemaphoreAcquireSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, granted := NewDynamic(10, 1), make(chan struct{}, 3)
		require.True(t, s.Acquire(t.Context(), "a", 8, 0), "five permits, and an overdraft of three")
		require.Equal(t, 5, s.InUse())
		for range 3 {
			go func() {
				if s.Acquire(t.Context(), "a", 8, time.Hour) {
					granted <- struct{}{}
				}
			}()
		}
		synctest.Wait()
		s.Release("a", 3)
		synctest.Wait()
		require.Empty(t, granted)
		for n, left := range []int{5, 8, 8} { // of the one before
			s.Release("a", left)
			synctest.Wait()
			require.Len(t, granted, n+1)
		}
		s.Release("a", 8)
		require.Zero(t, s.InUse())
		require.Zero(t, s.Tenants())
	})
}

// A tenant that is alone, and one among many that wait.
func BenchmarkSemaphore(b *testing.B) {
	for _, waiting := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) {
			s := NewDynamic(2*waiting+2, 1)
			ctx, cancel := context.WithCancel(b.Context())
			for i := range waiting { // each holds more than it may, and wants one more
				tenant := fmt.Sprint("t", i)
				s.Overdraw(tenant, 4*waiting)
				go s.Acquire(ctx, tenant, 1, time.Hour)
			}
			for queued := 0; queued < waiting; {
				s.mu.Lock()
				queued = len(s.waiting)
				s.mu.Unlock()
			}
			for b.Loop() {
				s.Overdraw("quiet", 1)
				s.Release("quiet", 1)
				s.Overdraw("t0", 1)
				s.Release("t0", 1)
			}
			cancel()
		})
	}
}

// TryAcquireAll takes all or nothing, up to the tenant's bound, and what is free of the others' hands.
func TestTryAcquireAll(t *testing.T) {
	t.Parallel()
	s := NewBounded(64, 16)
	for range 4 {
		require.True(t, s.TryAcquireAll("a", 4))
	}
	require.False(t, s.TryAcquireAll("a", 1), "its bound")
	require.True(t, s.TryAcquireAll("b", 13))
	require.False(t, s.TryAcquireAll("b", 4))
	require.Equal(t, 13, s.Held("b"), "nothing of what does not fit")
	require.True(t, s.TryAcquireAll("c", 16))
	require.Equal(t, 45, s.InUse())
	require.False(t, s.TryAcquireAll("d", 11), "19 are free: with 11 it would hold more than the 8 that are left")
	require.True(t, s.TryAcquireAll("d", 10))
	require.True(t, s.TryAcquireAll("e", 4), "there is room for the next")
	for tenant, n := range map[string]int{"a": 16, "b": 13, "c": 16, "d": 10, "e": 4} {
		s.Release(tenant, n)
	}
	require.Zero(t, s.InUse())
	require.Zero(t, s.Tenants())
}
