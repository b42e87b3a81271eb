package starter

import (
	"sync"

	"github.com/everpost/everpost/internal/webhook"
)

// behind counts, by endpoint, the deliveries in the queue whose first requests wait for
// their workflows. What comes after them is not sent before them.
type behind struct {
	mu sync.Mutex
	of map[webhook.EndpointID]int // none is 0
}

// add counts a delivery that comes, or goes with -1, unless its request was sent eagerly.
func (b *behind) add(start *webhook.Start, n int) {
	if start.OwnWorkflow {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[webhook.EndpointID]int{}
	}
	b.of[start.EndpointID] += n
	if b.of[start.EndpointID] == 0 {
		delete(b.of, start.EndpointID)
	}
}

func (b *behind) has(endpoint webhook.EndpointID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[endpoint] > 0
}
