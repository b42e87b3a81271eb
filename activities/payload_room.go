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
)

func newPayloadRooms() *fair.Semaphore { return fair.NewDynamic(maxPayloads/payloadStep, 1) }

// payloadRoom is the part of maxPayloads that an attempt holds. It is taken for the largest payload that the installation
// accepts, before the payload is read and its size is known, and made to fit then.
type payloadRoom struct {
	of     *fair.Semaphore
	tenant string
	held   int // in steps
}

// takePayloadRoom waits for room up to slowWait. False: the payloads that the tenant or all tenants are being sent leave none.
func (a *Activities) takePayloadRoom(ctx context.Context, tenant string) (payloadRoom, bool) {
	steps := payloadSteps(a.maxPayload)
	if !a.payloads.Acquire(ctx, tenant, steps, slowWait) {
		return payloadRoom{}, false
	}
	return payloadRoom{a.payloads, tenant, steps}, true
}

// fit makes the room that of a payload of n bytes. It never fails: a payload may have been stored under a larger limit.
func (r *payloadRoom) fit(n int) {
	steps := payloadSteps(n)
	r.of.Resize(r.tenant, r.held, steps)
	r.held = steps
}

func (r *payloadRoom) release() {
	if r.of == nil { // none was taken
		return
	}
	r.of.Release(r.tenant, r.held)
	r.held = 0
}

func payloadSteps(n int) int { return max(1, (n+payloadStep-1)/payloadStep) }
