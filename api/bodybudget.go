package api

import (
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits of the memory for request bodies in a process. docs/memory.md documents them.
const (
	bodyStep = 64 << 10 // memory for a body is reserved in steps of this size, as its bytes arrive

	minProcessBodies = 64 << 20
	bodiesPerProcess = 16 // of the largest payloads, if that is more than minProcessBodies

	// bodyRetryAfter is the Retry-After of a refused body: others are read or given up within
	// seconds.
	bodyRetryAfter = time.Second
)

// bodyBudget counts the memory for request bodies in this process.
type bodyBudget struct {
	max, tenantMax int
	// smallReserve is the part of max that batches of more than one step may not use, so that all other bodies, such as
	// single events, still fit.
	smallReserve int

	mu       sync.Mutex
	total    int
	large    int // the part of total for batches larger than a step
	byTenant map[string]int

	joining sync.Mutex // held while a body is joined, see join
}

// newBodyBudget returns the budget of an installation whose largest payload has that many bytes.
func newBodyBudget(maxPayload int) *bodyBudget {
	most := max(minProcessBodies, bodiesPerProcess*maxPayload)
	return &bodyBudget{max: most, tenantMax: most / 4, smallReserve: most / 4, byTenant: map[string]int{}}
}

// bodyReservation is the part of the budget that one request has reserved.
type bodyReservation struct {
	budget *bodyBudget
	tenant string // the key's tenant; "" for an operator's key, which has no tenant limit
	bytes  int
	large  bool
}

// reserve adds n bytes to the reservation. large marks the body as a batch larger than a step
// and cannot be undone. On an error nothing is reserved: CodeRateLimited if the tenant's limit
// is reached, CodeUnavailable if the process's is.
func (r *bodyReservation) reserve(n int, large bool) error {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	becomesLarge := 0
	if large || r.large {
		becomesLarge = n
		if !r.large {
			becomesLarge += r.bytes
		}
	}
	if r.tenant != "" && b.byTenant[r.tenant]+n > b.tenantMax {
		return &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: bodyRetryAfter,
			Message: "the bodies of the tenant's current requests have reached their limit of " + megabytes(b.tenantMax) + ": send fewer at a time",
		}
	}
	if b.total+n > b.max || becomesLarge > 0 && b.large+becomesLarge > b.max-b.smallReserve {
		return &webhook.Error{
			Code: webhook.CodeUnavailable, RetryAfter: bodyRetryAfter,
			Message: "the bodies of all current requests have reached their limit",
		}
	}
	b.total += n
	b.large += becomesLarge
	r.bytes += n
	r.large = r.large || large
	if r.tenant != "" {
		b.byTenant[r.tenant] += n
	}
	return nil
}

// release returns the whole reservation. It may be called more than once.
func (r *bodyReservation) release() {
	if r.bytes == 0 {
		return
	}
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= r.bytes
	if r.large {
		b.large -= r.bytes
	}
	if r.tenant != "" {
		if b.byTenant[r.tenant] -= r.bytes; b.byTenant[r.tenant] == 0 {
			delete(b.byTenant, r.tenant)
		}
	}
	r.bytes, r.large = 0, false
}

// held returns the number of reserved bytes.
func (b *bodyBudget) held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}
