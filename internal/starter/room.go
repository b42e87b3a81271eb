package starter

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"
)

// room counts places and shares them among tenants: none may use more than greed times
// as many as are left free. With a greed of one, a tenant that is alone gets a half, two
// get a third each, and so on: there is a place for whoever has none, and nobody has to
// know how many they are. (Dynamic thresholds: A. K. Choudhury and E. L. Hahne, "Dynamic
// Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on
// Networking 6(2), 1998.)
//
// Who waits for a place is served in the order of asking within a tenant; among tenants,
// whoever uses least is next. An operation costs O(log n) of the tenants that wait.
type room struct {
	mu     sync.Mutex
	size   int
	greed  int
	used   int // places; never more than size
	guests map[string]*guest
	line   line
	turns  uint64
}

// guest is a tenant that uses places or waits for one.
type guest struct {
	tenant  string
	used    int       // places, and its debt
	debt    int       // what it has overdrawn beyond its share: no place of anybody's
	waiters list.List // of *wish
	turn    uint64    // among those that use as many
	at      int       // in the line
}

// wish is what somebody waits for.
type wish struct {
	n     int           // places
	ready chan struct{} // closed when they are theirs
}

func newRoom(size, greed int) *room {
	return &room{size: size, greed: greed, guests: map[string]*guest{}}
}

// take waits, at most patience, until the tenant may use a place, and uses n: those
// beyond its share are a debt.
func (r *room) take(ctx context.Context, tenant string, n int, patience time.Duration) bool {
	r.mu.Lock()
	g := r.guest(tenant)
	if g.waiters.Len() == 0 && r.mayUse(g) {
		r.charge(g, n)
		r.mu.Unlock()
		return true
	}
	mine := &wish{n, make(chan struct{})}
	place := g.waiters.PushBack(mine)
	if g.waiters.Len() == 1 {
		r.turns++
		g.turn = r.turns
		heap.Push(&r.line, g)
	}
	r.mu.Unlock()

	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-mine.ready:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-mine.ready: // it came at the last moment
		return true
	default:
		g.waiters.Remove(place)
		if g.waiters.Len() == 0 {
			heap.Remove(&r.line, g.at)
			r.forget(g)
		}
		return false
	}
}

// overdraw uses n more for the tenant, whether or not it may: places as long as it may,
// and what is beyond that is a debt, which keeps out nobody but itself.
func (r *room) overdraw(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guest(tenant)
	r.charge(g, n)
	r.moved(g)
}

// give returns n of what the tenant uses; its debt is paid first.
func (r *room) give(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guests[tenant]
	paid := min(n, g.debt)
	g.debt -= paid
	g.used -= n
	r.used -= n - paid
	r.moved(g)
	r.admit()
	r.forget(g)
}

// admit lets in whoever may now be. It is enough to look at who uses least: if that one
// may not, none may.
func (r *room) admit() {
	for len(r.line) > 0 && r.mayUse(r.line[0]) {
		g := r.line[0]
		next, _ := g.waiters.Remove(g.waiters.Front()).(*wish)
		r.charge(g, next.n)
		close(next.ready)
		if g.waiters.Len() == 0 {
			heap.Pop(&r.line)
			continue
		}
		r.turns++
		g.turn = r.turns
		r.moved(g)
	}
}

// guest is the tenant's, a new one if there was none.
func (r *room) guest(tenant string) *guest {
	g := r.guests[tenant]
	if g == nil {
		g = &guest{tenant: tenant}
		r.guests[tenant] = g
	}
	return g
}

func (r *room) mayUse(g *guest) bool { return g.used < r.greed*(r.size-r.used) }

// charge counts n places, and as a debt those that the tenant may not use.
func (r *room) charge(g *guest, n int) {
	for range n {
		g.used++
		if g.used-1 < r.greed*(r.size-r.used) {
			r.used++
		} else {
			g.debt++
		}
	}
}

// moved puts the guest where it belongs in the line, if it is there.
func (r *room) moved(g *guest) {
	if g.waiters.Len() > 0 {
		heap.Fix(&r.line, g.at)
	}
}

// forget drops a guest that has nothing here any more.
func (r *room) forget(g *guest) {
	if g.used == 0 && g.waiters.Len() == 0 {
		delete(r.guests, g.tenant)
	}
}

// line is a heap of the guests that wait: first who uses least, and of those who has
// waited longest for its turn.
type line []*guest

func (l *line) Len() int { return len(*l) }

func (l *line) Less(i, j int) bool {
	a, b := (*l)[i], (*l)[j]
	if a.used != b.used {
		return a.used < b.used
	}
	return a.turn < b.turn
}

func (l *line) Swap(i, j int) {
	all := *l
	all[i], all[j] = all[j], all[i]
	all[i].at, all[j].at = i, j
}

// Push implements heap.Interface.
func (l *line) Push(x any) {
	g, _ := x.(*guest)
	g.at = len(*l)
	*l = append(*l, g)
}

// Pop implements heap.Interface.
func (l *line) Pop() any {
	last := len(*l) - 1
	g := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return g
}
