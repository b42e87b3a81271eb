package activities

import (
	"time"

	"github.com/everpost/everpost/internal/admission"
)

// attempt is an attempt on its way through the stages: execute, in execute.go. Only its own goroutine uses it; but others read exec.
type attempt struct {
	*process

	exec  *execution
	in    AttemptInput  // with the progress that a claim, or the first of two requests, has led to
	eager *eagerRequest // nil: a workflow has asked for the attempt
	facts facts

	permit       *admission.Permit // nil before admission
	admitting    time.Duration     // what admission has taken, which is not Everpost's lateness
	hasSlowPlace bool              // it has a place among the requests to slow receivers
	payload      payloadRoom
	isRecorded   bool
}

func newAttempt(p *process, exec *execution, in AttemptInput) *attempt {
	return &attempt{
		process: p, exec: exec, in: in, payload: payloadRoom{of: p.payloads, tenant: in.TenantID},
		facts: facts{leastDelay: p.leastRetryDelay, maxHeld: p.maxHeld, unrecorded: exec.unrecorded},
	}
}

func (att *attempt) decide(now time.Time) outcome { return decide(att.in, &att.facts, now) }
