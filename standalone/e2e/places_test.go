package e2e_test

import (
	"strings"
	"sync"
	"testing"
)

// places bounds how many tests run at a time.
type places struct {
	free chan struct{}

	mu    sync.Mutex
	taken map[string]bool // by the names of tests
}

func newPlaces(n int) *places { return &places{free: make(chan struct{}, n), taken: map[string]bool{}} }

// take waits for a place, and gives it back at the end of the test. A test that has one, or is part of one that has, needs no other:
// those that have all places may wait for it.
func (p *places) take(t *testing.T) {
	t.Helper()
	if !p.note(t.Name()) {
		return
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.taken, t.Name())
	})
	select {
	case p.free <- struct{}{}:
	case <-t.Context().Done():
		t.FailNow()
	}
	t.Cleanup(func() { <-p.free })
}

// note notes a test, unless it or one that it is part of is noted.
func (p *places) note(test string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := test; ; {
		if p.taken[name] {
			return false
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			p.taken[test] = true
			return true
		}
		name = name[:i]
	}
}
