package starter

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// tokenLife is how long after it was stored a delivery may be begun without a look
	// into the record: less than the relay waits before it takes it up.
	tokenLife = 5 * time.Second
	// freshBytes bounds the payloads that wait; beyond it the first attempt reads its
	// payload from the record.
	freshBytes = 64 << 20
)

// Fresh holds the payloads of deliveries that were stored a moment ago. Each is a
// one-time token: whoever takes it is the first to send this delivery, and needs
// not ask the record. It is the only permission of that kind, so it must be given
// once only, and not after its time.
type Fresh struct {
	mu     sync.Mutex
	byID   map[webhook.DeliveryID]token
	oldest []webhook.DeliveryID // in the order of their coming; taken ones linger until their time
	bytes  int
	now    func() time.Time
}

type token struct {
	webhook.Content

	until time.Time
}

func newFresh(now func() time.Time) *Fresh {
	return &Fresh{byID: map[webhook.DeliveryID]token{}, now: now}
}

// put leaves a payload for the delivery's first attempt, with its SHA-256 and the time of its
// event by the database's clock. begun is when the relay begins to count, by this process's:
// not after the commit.
func (f *Fresh) put(id webhook.DeliveryID, payload []byte, sum [sha256.Size]byte, created, begun time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.expire(now)
	until := begun.Add(tokenLife)
	if _, twice := f.byID[id]; twice || f.bytes+len(payload) > freshBytes || !now.Before(until) {
		return
	}
	f.byID[id] = token{webhook.Content{Payload: payload, SHA256: sum, CreatedAt: created}, until}
	f.oldest = append(f.oldest, id)
	f.bytes += len(payload)
}

// Take returns the payload once, within its time, with the SHA-256 that it had when it
// arrived: whoever sends it compares.
func (f *Fresh) Take(id webhook.DeliveryID) (content webhook.Content, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	t, ok := f.byID[id]
	if ok {
		delete(f.byID, id)
		f.bytes -= len(t.Payload)
	}
	if !ok || !now.Before(t.until) {
		return webhook.Content{}, false
	}
	return t.Content, true
}

// expire drops what is past its time. The caller holds the lock.
func (f *Fresh) expire(now time.Time) {
	n := 0
	for _, id := range f.oldest {
		t, waiting := f.byID[id]
		if waiting && now.Before(t.until) {
			break
		}
		if waiting {
			delete(f.byID, id)
			f.bytes -= len(t.Payload)
		}
		n++
	}
	f.oldest = f.oldest[n:]
}
