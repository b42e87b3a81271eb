package activities

import "sync"

// shares are places of which a tenant gets as many as it leaves to the others.
type shares struct {
	mu    sync.Mutex
	taken int
	of    map[string]int // by tenant; none is 0
}

// take takes one of so many places; false when there is none for the tenant.
func (s *shares) take(tenant string, places int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]int{}
	}
	free := places - s.taken
	if free <= 0 || s.of[tenant] >= free {
		return false
	}
	s.taken++
	s.of[tenant]++
	return true
}

func (s *shares) give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.of[tenant]--
	if s.of[tenant] == 0 {
		delete(s.of, tenant)
	}
}
