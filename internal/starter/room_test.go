package starter

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

// waiter is somebody who asked for a place.
type waiter struct {
	leave context.CancelFunc
	got   chan bool
}

func (w *waiter) answer() (got, answered bool) {
	select {
	case got = <-w.got:
		return got, true
	default:
		return false, false
	}
}

// modelGuest is what the model knows of a tenant.
type modelGuest struct {
	used, debt int
	waiting    []*waiter
	since      int // the operation with which it got its turn
}

// modelRoom is a room in words: who may, and who of them is next.
type modelRoom struct {
	size, greed int
	guests      map[string]*modelGuest
	clock       int
}

func (m *modelRoom) tick() int {
	m.clock++
	return m.clock
}

func (m *modelRoom) free() int {
	free := m.size
	for _, g := range m.guests {
		free -= g.used - g.debt
	}
	return free
}

func (m *modelRoom) may(g *modelGuest) bool { return g.used < m.greed*m.free() }

// next is whom a place goes to now: of those who may, who uses least, and among equals
// who has been longest without one. Nil when nobody may.
func (m *modelRoom) next() *modelGuest {
	var all []*modelGuest
	for _, g := range m.guests {
		if len(g.waiting) > 0 && m.may(g) {
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *modelGuest) int { return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.since, b.since)) })
}

// The room, against a model: places go to who uses least, within a tenant in the order
// of asking; nobody takes more than there is or than is right; none is lost, whoever
// leaves or overdraws, and nothing is remembered of who has gone.
func TestRoomModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A bubble's clock has no deadline of the test, for which rapid would ask.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			size := rapid.IntRange(1, 8).Draw(t, "size")
			m := &modelRoom{size: size, greed: rapid.SampledFrom([]int{1, 2, size}).Draw(t, "greed"), guests: map[string]*modelGuest{}}
			r := newRoom(m.size, m.greed)
			for _, tenant := range []string{"a", "b", "c", "d"} {
				m.guests[tenant] = &modelGuest{}
			}
			defer func() { // also when it fails
				for _, g := range m.guests {
					for _, w := range g.waiting {
						w.leave()
					}
				}
				synctest.Wait()
			}()
			draw := func(t *rapid.T) (string, *modelGuest) {
				tenant := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant")
				return tenant, m.guests[tenant]
			}
			admit := func() {
				for g := m.next(); g != nil; g = m.next() {
					got, answered := g.waiting[0].answer()
					require.True(t, got && answered, "the first in the line was passed over")
					g.waiting = g.waiting[1:]
					g.used++
					g.since = m.tick()
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"take": func(t *rapid.T) {
					tenant, g := draw(t)
					ctx, cancel := context.WithCancel(context.Background())
					w := &waiter{leave: cancel, got: make(chan bool, 1)}
					go func() { w.got <- r.take(ctx, tenant, 1, time.Hour) }()
					synctest.Wait()
					if len(g.waiting) == 0 {
						g.since = m.tick()
					}
					g.waiting = append(g.waiting, w)
					admit()
				},
				"leave": func(t *rapid.T) {
					_, g := draw(t)
					if len(g.waiting) == 0 {
						t.Skip("nobody waits")
					}
					i := rapid.IntRange(0, len(g.waiting)-1).Draw(t, "who")
					g.waiting[i].leave()
					synctest.Wait()
					got, answered := g.waiting[i].answer()
					require.True(t, answered)
					require.False(t, got)
					g.waiting = slices.Delete(g.waiting, i, i+1)
				},
				"overdraw": func(t *rapid.T) {
					tenant, g := draw(t)
					n := rapid.IntRange(1, 3).Draw(t, "n")
					r.overdraw(tenant, n)
					for range n {
						if !m.may(g) {
							g.debt++
						}
						g.used++
					}
				},
				"give": func(t *rapid.T) {
					tenant, g := draw(t)
					if g.used == 0 {
						t.Skip("nothing is used")
					}
					n := rapid.IntRange(1, g.used).Draw(t, "n")
					r.give(tenant, n)
					synctest.Wait()
					g.debt = max(0, g.debt-n)
					g.used -= n
					admit()
				},
				"": func(t *rapid.T) { checkRoom(t, r, m) },
			})
		})
	})
}

func checkRoom(t *rapid.T, r *room, m *modelRoom) {
	remembered, inLine := 0, 0
	for tenant, g := range m.guests {
		if g.used == 0 && len(g.waiting) == 0 {
			require.NotContains(t, r.guests, tenant)
			continue
		}
		remembered++
		require.Equal(t, g.used, r.guests[tenant].used, tenant)
		require.Equal(t, g.debt, r.guests[tenant].debt, tenant)
		require.Equal(t, len(g.waiting), r.guests[tenant].waiters.Len(), tenant)
		if len(g.waiting) > 0 {
			inLine++
			require.True(t, g.used > 0 || m.free() == 0, "who has nothing waits only when there is nothing")
		}
		for _, w := range g.waiting {
			_, answered := w.answer()
			require.False(t, answered, "nothing was free")
		}
	}
	require.Len(t, r.guests, remembered)
	require.Len(t, r.line, inLine)
	require.GreaterOrEqual(t, m.free(), 0, "the bound of all places")
	require.Equal(t, m.size-m.free(), r.used)
}

func TestRoomPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 1)
		require.True(t, r.take(t.Context(), "a", 1, 0))
		for _, tenant := range []string{"a", "b"} {
			begun := time.Now()
			require.False(t, r.take(t.Context(), tenant, 1, time.Second))
			require.Equal(t, time.Second, time.Since(begun))
			time.AfterFunc(time.Second/2, func() { r.give("a", 1) })
			begun = time.Now()
			require.True(t, r.take(t.Context(), tenant, 1, time.Second))
			require.Equal(t, time.Second/2, time.Since(begun))
			require.Equal(t, 1, r.used)
			r.give(tenant, 1)
			require.Empty(t, r.guests)
			require.True(t, r.take(t.Context(), "a", 1, 0))
		}
	})
}

// Who uses least is next, and of those who use as many, who has been longest without.
func TestRoomTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(9, 9)
		for tenant, n := range map[string]int{"a": 2, "b": 3, "c": 4} {
			for range n {
				require.True(t, r.take(t.Context(), tenant, 1, 0))
			}
		}
		got := make(chan string, 8)
		for _, tenant := range []string{"a", "a", "a", "b", "b", "b"} {
			go func() {
				if r.take(t.Context(), tenant, 1, time.Hour) {
					got <- tenant
				}
			}()
			synctest.Wait()
		}
		for i, want := range []string{"a", "b", "a", "b"} {
			r.give("c", 1)
			require.Equal(t, want, <-got, i)
		}
		r.give("a", 2)
		require.ElementsMatch(t, []string{"a", "b"}, []string{<-got, <-got})
	})
}

// What tenants get that all want everything: as much as is left free, each, and for
// each that comes there is a place although they have filled the room before.
func TestRoomShares(t *testing.T) {
	t.Parallel()
	for greed, want := range map[int][]int{ // by the number of tenants: what each may use
		1:    {500, 250, 125},
		3:    {750, 187, 46},
		1000: {1000, 0, 0},
	} {
		r := newRoom(1000, greed)
		for i, most := range want {
			tenant := fmt.Sprint("t", i)
			got := 0
			for r.take(t.Context(), tenant, 1, 0) {
				got++
			}
			require.InDelta(t, most, got, 1, "greed %d, tenant %d", greed, i)
		}
	}
}

// However much a tenant has overdrawn, another gets a place at once, and the first
// has to make up for it before it gets the next.
func TestRoomDebt(t *testing.T) {
	t.Parallel()
	r := newRoom(10, 1)
	r.overdraw("a", 1000)
	require.Equal(t, 5, r.used)
	require.True(t, r.take(t.Context(), "b", 1, 0))
	require.False(t, r.take(t.Context(), "a", 1, 0))
	r.give("a", 995)
	require.Equal(t, 6, r.used, "only what was owed is paid")
	require.False(t, r.take(t.Context(), "a", 1, 0), "a has five, and four are free")
	r.give("a", 1)
	require.True(t, r.take(t.Context(), "a", 1, 0))
}

// A batch counts for all its events from when it is let in: of many that wait, one is
// let in where there is room for one.
func TestRoomForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, entered := newRoom(10, 1), make(chan struct{}, 3)
		require.True(t, r.take(t.Context(), "a", 8, 0), "five places, and a debt of three")
		require.Equal(t, 5, r.used)
		for range 3 {
			go func() {
				if r.take(t.Context(), "a", 8, time.Hour) {
					entered <- struct{}{}
				}
			}()
		}
		synctest.Wait()
		r.give("a", 3)
		synctest.Wait()
		require.Empty(t, entered)
		for n, left := range []int{5, 8, 8} { // of the one before
			r.give("a", left)
			synctest.Wait()
			require.Len(t, entered, n+1)
		}
		r.give("a", 8)
		require.Zero(t, r.used)
		require.Empty(t, r.guests)
	})
}

// A request at the door at ease, and beside many tenants that wait.
func BenchmarkRoom(b *testing.B) {
	for _, waiting := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) {
			r := newRoom(2*waiting+2, 1)
			ctx, cancel := context.WithCancel(b.Context())
			for i := range waiting { // each uses more than it may, and wants one more
				tenant := fmt.Sprint("t", i)
				r.overdraw(tenant, 4*waiting)
				go r.take(ctx, tenant, 1, time.Hour)
			}
			for lined := 0; lined < waiting; {
				r.mu.Lock()
				lined = len(r.line)
				r.mu.Unlock()
			}
			for b.Loop() {
				r.overdraw("quiet", 1)
				r.give("quiet", 1)
				r.overdraw("t0", 1)
				r.give("t0", 1)
			}
			cancel()
		})
	}
}
