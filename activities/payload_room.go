package activities

import (
	"context"

	"github.com/everpost/everpost/internal/fair"
)

const (
	// maxPayloads bounds the payloads of the attempts that run, in bytes. Each takes room in steps of payloadStep, so that there
	// is room for MaxRunning small ones of a single tenant, which may have half of it.
	maxPayloads = 128 << 20
	payloadStep = 16 << 10
	// sparePayloads is what payloads that are read before admission leave free, in steps: half of what a tenant that is alone may have.
	sparePayloads = maxPayloads / payloadStep / 4
)

func newPayloadRooms() *fair.Semaphore { return fair.NewDynamic(maxPayloads/payloadStep, 1) }

// payloadRoom is the part of maxPayloads that an attempt holds. It is taken for the largest payload that the installation
// accepts, before the payload is read and its size is known, and made to fit then.
type payloadRoom struct {
	of     *fair.Semaphore
	tenant string
	held   int // in steps
}

// take waits for room for a payload of up to n bytes, up to slowWait, unless it has room already. False: the payloads that the tenant or
// all tenants are being sent leave none.
func (r *payloadRoom) take(ctx context.Context, n int) bool {
	if r.held > 0 {
		return true
	}
	steps := payloadSteps(n)
	if !r.of.Acquire(ctx, r.tenant, steps, slowWait) {
		return false
	}
	r.held = steps
	return true
}

// takeSpare is take for an attempt that has no permit. It does not wait, and leaves half of what the tenant may have to those that have one.
func (r *payloadRoom) takeSpare(n int) bool {
	steps := payloadSteps(n)
	if r.of.Free(r.tenant) < sparePayloads+steps || !r.of.TryAcquireAll(r.tenant, steps) {
		return false
	}
	r.held = steps
	return true
}

// fit makes the room that of a payload of n bytes. It never fails: a payload may have been stored under a larger limit.
func (r *payloadRoom) fit(n int) {
	steps := payloadSteps(n)
	r.of.Resize(r.tenant, r.held, steps)
	r.held = steps
}

func (r *payloadRoom) release() {
	if r.held > 0 {
		r.of.Release(r.tenant, r.held)
		r.held = 0
	}
}

func payloadSteps(n int) int { return max(1, (n+payloadStep-1)/payloadStep) }
