package api

import (
	"strconv"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Bounds of the request bodies that a process holds at a time. docs/operations.md says
// them to operators.
const (
	bodyStep = 64 << 10 // room for a body is reserved in such steps, as its bytes arrive

	maxProcessBodies = 64 << 20
	maxTenantBodies  = 16 << 20
	// smallBodyReserve is what batches of more than one step leave of maxProcessBodies to all
	// other bodies, single events among them.
	smallBodyReserve = 16 << 20

	// bodyRetryAfter is when a refused caller may come back: a body is read within
	// seconds or given up.
	bodyRetryAfter = time.Second
)

// bodyBudget counts the bytes that request bodies hold in this process. Its zero value
// is an empty one.
type bodyBudget struct {
	mu       sync.Mutex
	total    int
	large    int // the part of total that is of batches larger than a step
	byTenant map[string]int

	joining sync.Mutex // held while a body is joined, see join
}

// bodyReservation is what one request has reserved of the budget.
type bodyReservation struct {
	budget *bodyBudget
	tenant string // whose key it is; "" for an operator's, which no tenant's bound holds
	bytes  int
	large  bool
}

// reserve adds n bytes to the reservation. large says that the body is a batch larger than
// a step, which cannot be taken back. Nothing is reserved when there is an error:
// CodeRateLimited when the tenant's bodies hold all that they may, CodeUnavailable when
// all bodies together do.
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
	if r.tenant != "" && b.byTenant[r.tenant]+n > maxTenantBodies {
		return &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: bodyRetryAfter,
			Message: "the bodies of the tenant's requests under way hold " + megabytes(maxTenantBodies) + ", which is all they may: send fewer at a time",
		}
	}
	if b.total+n > maxProcessBodies || becomesLarge > 0 && b.large+becomesLarge > maxProcessBodies-smallBodyReserve {
		return &webhook.Error{
			Code: webhook.CodeUnavailable, RetryAfter: bodyRetryAfter,
			Message: "the bodies of all requests under way hold as much as they may",
		}
	}
	b.total += n
	b.large += becomesLarge
	r.bytes += n
	r.large = r.large || large
	if r.tenant != "" {
		if b.byTenant == nil {
			b.byTenant = map[string]int{}
		}
		b.byTenant[r.tenant] += n
	}
	return nil
}

// release gives back everything that is reserved. It may be called more than once.
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

// held is how many bytes are reserved.
func (b *bodyBudget) held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

func megabytes(n int) string { return strconv.Itoa(n>>20) + " MiB" }
