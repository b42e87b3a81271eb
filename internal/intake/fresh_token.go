package intake

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// tokenLife is how long after it was kept, which follows the commit or the forwarding, a delivery may be sent without asking the store. For
	// so long a cancel may come in vain, so it is short.
	tokenLife = time.Second
	// tokenEnd is how long after the process began to store it a delivery may be sent without asking the store, however
	// long the commit took: less than the relay waits, from then on, before it starts the delivery.
	tokenEnd = 3 * time.Second
	// maxFreshBytes bounds the payloads and headers in memory. The first attempt of a delivery beyond that reads
	// its payload from the store.
	maxFreshBytes = 64 << 20
)

// Fresh holds the payloads of deliveries that were stored a moment ago. Each is a one-time token: the
// attempt that takes it is the first to send the delivery, and need not ask the store. There is no
// other permission without the store, so a token is given once only, and not after its time.
type Fresh struct {
	mu    sync.Mutex
	byID  map[webhook.DeliveryID]token
	order []webhook.DeliveryID // by age; ids of taken tokens are removed when they expire
	bytes int
	now   func() time.Time
}

type token struct {
	webhook.Content

	of    webhook.Ref
	until time.Time
}

// NewFresh returns an empty Fresh.
func NewFresh() *Fresh { return newFresh(time.Now) }

func newFresh(now func() time.Time) *Fresh {
	return &Fresh{byID: map[webhook.DeliveryID]token{}, now: now}
}

// put stores the content of its event for the delivery's first attempt. received is when this process began to store it, by its own clock.
func (f *Fresh) put(of webhook.Ref, content webhook.Content, received time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.expire(now)
	until := now.Add(tokenLife)
	if end := received.Add(tokenEnd); end.Before(until) {
		until = end
	}
	if _, twice := f.byID[of.DeliveryID]; twice || f.bytes+content.Size() > maxFreshBytes || !now.Before(until) {
		return
	}
	f.byID[of.DeliveryID] = token{content, of, until}
	f.order = append(f.order, of.DeliveryID)
	f.bytes += content.Size()
}

// Take returns the payload once, within its time, with the SHA-256 that it had when it arrived. The
// sender compares the two. A token of another tenant or type of event is not there.
func (f *Fresh) Take(of webhook.Ref) (content webhook.Content, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	t, ok := f.byID[of.DeliveryID]
	if !ok || t.of != of {
		return webhook.Content{}, false
	}
	delete(f.byID, of.DeliveryID)
	f.bytes -= t.Size()
	if !now.Before(t.until) {
		return webhook.Content{}, false
	}
	return t.Content, true
}

// expire removes tokens that are past their time. The caller holds the lock.
func (f *Fresh) expire(now time.Time) {
	n := 0
	for _, id := range f.order {
		t, waiting := f.byID[id]
		if waiting && now.Before(t.until) {
			break
		}
		if waiting {
			delete(f.byID, id)
			f.bytes -= t.Size()
		}
		n++
	}
	f.order = f.order[n:]
}
