package intake

import (
	"sync"
	"time"
)

const (
	// startPatience is how long a start loop waits for a start before it goes on with the next one: a start whose history shard is lost, or moves
	// to another host, takes as long as a call may.
	startPatience = 300 * time.Millisecond
	// maxStarting bounds the starts of a loop that are under way.
	maxStarting = 16
)

// starters make the starts of one loop: one at a time as long as they are quick. What starts are not answered in time holds up no other: the relay
// repeats them from the outbox, and the start loop those of gatherings. The goroutines stay, because a start needs a large stack.
type starters struct {
	patience time.Duration
	starts   chan func()
	n        int // goroutines
	all      sync.WaitGroup
}

func newStarters(patience time.Duration) *starters {
	return &starters{patience: patience, starts: make(chan func())}
}

// do makes a start, and returns when it is made, or patience later. While maxStarting are under way it waits for one of them before.
func (s *starters) do(start func()) {
	made := make(chan struct{})
	once := func() {
		defer close(made)
		start()
	}
	select {
	case s.starts <- once:
	default:
		s.goOrWait(once)
	}
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	select {
	case <-made:
	case <-timer.C:
	}
}

// goOrWait has another goroutine make a start, or the first one that is free.
func (s *starters) goOrWait(start func()) {
	if s.n == maxStarting {
		s.starts <- start
		return
	}
	s.n++
	s.all.Go(func() {
		start()
		for next := range s.starts {
			next()
		}
	})
}

// stop waits for the starts under way.
func (s *starters) stop() {
	close(s.starts)
	s.all.Wait()
}
