package fair

import (
	"container/heap"
	"container/list"
	"context"
	"math"
	"sync"
	"time"
)

// Semaphore is a counting semaphore whose permits are shared among tenants. Permits go to waiters
// in the order of their calls within a tenant, and among tenants to the one that holds the fewest.
// A tenant that holds nothing and waits for nothing takes no memory. A Semaphore is safe for
// concurrent use. An operation is O(log n) of the tenants that wait.
type Semaphore struct {
	size      int
	factor    int
	perTenant int

	mu      sync.Mutex
	inUse   int // never more than size
	tenants map[string]*share
	waiting shareHeap
	turns   uint64
}

// share is what one tenant holds and waits for.
type share struct {
	tenant    string
	held      int       // permits, and the overdraft
	overdraft int       // what was taken by Overdraw, or as part of a larger Acquire, without a permit
	waiters   list.List // of *waiter
	turn      uint64    // orders tenants that hold the same number: since when it waits, or got a permit last
	index     int       // in the heap
}

// waiter is a call of Acquire that waits.
type waiter struct {
	n       int
	granted chan struct{} // closed when it holds its n
}

// NewDynamic returns a semaphore with dynamic thresholds: a tenant may hold at most factor times as
// many permits as are free. With a factor of 1, a single tenant gets half of them, two get a third
// each, and so on. So there is always a free permit for a tenant that comes next, and the number of
// tenants need not be known. See A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds
// for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998.
func NewDynamic(size, factor int) *Semaphore {
	return &Semaphore{size: size, factor: factor, perTenant: math.MaxInt, tenants: map[string]*share{}}
}

// elasticity is how many permits a tenant of an elastic semaphore may hold for each that is free.
const elasticity = 15

// NewElastic returns a semaphore of which a tenant that is alone may hold n permits. A fifteenth of n is left for those that come meanwhile. While
// several want permits, each may hold 15 times as many as are free, so that returned ones go to those that hold the fewest, until all hold the same.
func NewElastic(n int) *Semaphore { return NewDynamic(n+n/elasticity, elasticity) }

// NewCapped returns a semaphore of which each tenant may hold up to perTenant permits, as long as any
// is free.
func NewCapped(size, perTenant int) *Semaphore {
	return &Semaphore{size: size, factor: size, perTenant: perTenant, tenants: map[string]*share{}}
}

// NewBounded returns a semaphore with both bounds: dynamic thresholds with a factor of 1, and at most
// perTenant permits of a tenant.
func NewBounded(size, perTenant int) *Semaphore {
	return &Semaphore{size: size, factor: 1, perTenant: perTenant, tenants: map[string]*share{}}
}

// TryAcquireAll takes n permits if the tenant may have all of them now, and otherwise none.
func (s *Semaphore) TryAcquireAll(tenant string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.shareOf(tenant)
	last := n - 1 // what the tenant and all hold before the last permit
	if of.waiters.Len() > 0 || of.held+last >= s.perTenant || of.held+last >= s.factor*(s.size-s.inUse-last) {
		s.dropIfUnused(of)
		return false
	}
	s.inUse += n
	of.held += n
	return true
}

// TryAcquire takes a permit if the tenant may have one now.
func (s *Semaphore) TryAcquire(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryAcquire(tenant, 1)
}

// Acquire waits up to timeout until the tenant may have a permit, and takes n. What exceeds the
// tenant's threshold is overdrawn, so that a large n is granted as soon as a small one is.
func (s *Semaphore) Acquire(ctx context.Context, tenant string, n int, timeout time.Duration) bool {
	s.mu.Lock()
	if s.tryAcquire(tenant, n) {
		s.mu.Unlock()
		return true
	}
	of := s.shareOf(tenant)
	w := &waiter{n: n, granted: make(chan struct{})}
	element := of.waiters.PushBack(w)
	if of.waiters.Len() == 1 {
		s.turns++
		of.turn = s.turns
		heap.Push(&s.waiting, of)
	}
	s.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.granted: // at the last moment
		return true
	default:
	}
	of.waiters.Remove(element)
	if of.waiters.Len() == 0 {
		heap.Remove(&s.waiting, of.index)
		s.dropIfUnused(of)
	}
	return false
}

// Overdraw takes n at once, whatever the tenant holds. What exceeds its threshold uses no permit:
// it keeps only this tenant from its next one.
func (s *Semaphore) Overdraw(tenant string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.shareOf(tenant)
	s.charge(of, n)
	s.fix(of)
}

// Resize makes of what a holder has, from, what it needs now, to: it overdraws or releases the difference.
func (s *Semaphore) Resize(tenant string, from, to int) {
	switch {
	case to > from:
		s.Overdraw(tenant, to-from)
	case to < from:
		s.Release(tenant, from-to)
	}
}

// Release returns n of what the tenant holds; the overdraft is returned first.
func (s *Semaphore) Release(tenant string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[tenant]
	repaid := min(n, of.overdraft)
	of.overdraft -= repaid
	of.held -= n
	s.inUse -= n - repaid
	s.fix(of)
	s.grant()
	s.dropIfUnused(of)
}

// Free returns how many permits the tenant may take now.
func (s *Semaphore) Free(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := 0
	if of := s.tenants[tenant]; of != nil {
		if of.waiters.Len() > 0 {
			return 0
		}
		held = of.held
	}
	free := s.size - s.inUse
	// It takes a permit as long as held < factor * free, and each makes one more and one less of them.
	n := (s.factor*free - held + s.factor) / (s.factor + 1)
	return max(0, min(n, free, s.perTenant-held))
}

// Held returns how many the tenant holds, the overdraft included.
func (s *Semaphore) Held(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.tenants[tenant]; of != nil {
		return of.held
	}
	return 0
}

// InUse returns the number of permits that are not free.
func (s *Semaphore) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

// Tenants returns the number of tenants that hold or wait for a permit.
func (s *Semaphore) Tenants() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tenants)
}

// The methods below are called with the lock held.

func (s *Semaphore) tryAcquire(tenant string, n int) bool {
	of := s.shareOf(tenant)
	if of.waiters.Len() > 0 || !s.mayAcquire(of) {
		s.dropIfUnused(of)
		return false
	}
	s.charge(of, n)
	return true
}

func (s *Semaphore) mayAcquire(of *share) bool {
	return of.held < s.perTenant && of.held < s.factor*(s.size-s.inUse)
}

// charge counts n: as permits while the tenant may have one, then as its overdraft.
func (s *Semaphore) charge(of *share, n int) {
	for range n {
		if s.mayAcquire(of) {
			s.inUse++
		} else {
			of.overdraft++
		}
		of.held++
	}
}

// grant gives permits to waiters. If the tenant that holds the fewest may not have one, no other
// may.
func (s *Semaphore) grant() {
	for len(s.waiting) > 0 && s.mayAcquire(s.waiting[0]) {
		of := s.waiting[0]
		w, _ := of.waiters.Remove(of.waiters.Front()).(*waiter)
		s.charge(of, w.n)
		close(w.granted)
		if of.waiters.Len() == 0 {
			heap.Pop(&s.waiting)
			continue
		}
		s.turns++
		of.turn = s.turns
		s.fix(of)
	}
}

// shareOf returns the tenant's share and creates it if it does not exist.
func (s *Semaphore) shareOf(tenant string) *share {
	of := s.tenants[tenant]
	if of == nil {
		of = &share{tenant: tenant}
		s.tenants[tenant] = of
	}
	return of
}

// fix restores the heap after a change of the tenant's share.
func (s *Semaphore) fix(of *share) {
	if of.waiters.Len() > 0 {
		heap.Fix(&s.waiting, of.index)
	}
}

func (s *Semaphore) dropIfUnused(of *share) {
	if of.held == 0 && of.waiters.Len() == 0 {
		delete(s.tenants, of.tenant)
	}
}

// shareHeap orders the tenants that wait: the one that holds the fewest first, and among equals the
// one that has waited longest for its turn.
type shareHeap []*share

func (h *shareHeap) Len() int { return len(*h) }

func (h *shareHeap) Less(i, j int) bool {
	a, b := (*h)[i], (*h)[j]
	if a.held != b.held {
		return a.held < b.held
	}
	return a.turn < b.turn
}

func (h *shareHeap) Swap(i, j int) {
	all := *h
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

// Push implements heap.Interface.
func (h *shareHeap) Push(x any) {
	of, _ := x.(*share)
	of.index = len(*h)
	*h = append(*h, of)
}

// Pop implements heap.Interface.
func (h *shareHeap) Pop() any {
	last := len(*h) - 1
	of := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return of
}
