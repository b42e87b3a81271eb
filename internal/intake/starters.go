package intake

import (
	"time"

	"github.com/everpost/everpost/internal/pool"
)

const (
	// startPatience is how long a start loop waits for a start before it goes on with the next one: a start whose history shard is lost, or moves
	// to another host, takes as long as a call may.
	startPatience = 300 * time.Millisecond
	// maxStarting bounds the starts of a loop that are under way.
	maxStarting = 16
)

// starters make the starts of one loop: one at a time as long as they are quick. What starts are not answered in time holds up no other: the relay
// repeats them from the outbox, and the start loop those of gatherings.
type starters struct {
	patience   time.Duration
	places     chan struct{} // of the starts under way
	goroutines *pool.Pool
}

func newStarters(patience time.Duration) *starters {
	return &starters{patience: patience, places: make(chan struct{}, maxStarting), goroutines: pool.New(maxStarting)}
}

// do makes a start, and returns when it is made, or patience later. While maxStarting are under way it waits for one of them before.
func (s *starters) do(start func()) {
	s.places <- struct{}{}
	made := make(chan struct{})
	s.goroutines.Go(func() {
		defer func() {
			<-s.places
			close(made)
		}()
		start()
	})
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	select {
	case <-made:
	case <-timer.C:
	}
}

// stop waits for the starts under way.
func (s *starters) stop() { s.goroutines.Close() }
