package fleet

import (
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// grants are the permits that other processes have of this one's controller.
type grants struct{ *Fleet }

// grantID names a permit: the process that has it, and its number there.
type grantID struct {
	Process string
	Number  uint64
}

// grantedPermit is a permit of this process's controller that another process has, or one that was granted by the owner of a lane
// before this process.
type grantedPermit struct {
	permit  *admission.Permit // nil: it ended before it was known
	lane    int
	expires time.Time // it is no longer under way then, whatever became of it
}

// endGrant ends a permit that a process has. One that is not known yet is void when it comes.
func (f grants) endGrant(id grantID, lane int, r *admission.Result) {
	f.mu.Lock()
	granted := f.granted[id]
	if granted == nil {
		f.granted[id] = &grantedPermit{lane: lane, expires: time.Now().Add(maxAge(webhook.MaxTimeout))}
	} else {
		delete(f.granted, id)
	}
	f.mu.Unlock()
	if granted != nil && granted.permit != nil {
		end(granted.permit, r)
	}
}

// loseGrantsOf notes that a process which has permits may have ended: its connection has.
func (f grants) loseGrantsOf(process string) {
	var lost []*admission.Permit
	f.mu.Lock()
	for id, granted := range f.granted {
		if id.Process == process && granted.permit != nil {
			lost = append(lost, granted.permit)
		}
	}
	f.mu.Unlock()
	for _, p := range lost {
		p.Lose()
	}
}

// endGrantsOf cancels the granted permits that which selects.
func (f grants) endGrantsOf(which func(grantID, *grantedPermit) bool) {
	var gone []*admission.Permit
	f.mu.Lock()
	for id, granted := range f.granted {
		if which(id, granted) {
			delete(f.granted, id)
			if granted.permit != nil {
				gone = append(gone, granted.permit)
			}
		}
	}
	f.mu.Unlock()
	for _, p := range gone {
		p.Cancel()
	}
}

// endExpired cancels the granted permits whose requests cannot be under way any more: the process that had them has
// not said so.
func (f grants) endExpired() {
	now := time.Now()
	f.endGrantsOf(func(_ grantID, granted *grantedPermit) bool { return now.After(granted.expires) })
}

// grant notes that a process has a permit, and returns false if the lane was lost meanwhile.
func (f grants) grant(id grantID, endpoint webhook.EndpointID, epoch int64, permit *admission.Permit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := webhook.LaneOf(endpoint)
	l := &f.lanes[number]
	if !l.own || l.epoch != epoch || !f.holds() {
		return false
	}
	if _, ended := f.granted[id]; ended {
		delete(f.granted, id)
		return false
	}
	f.granted[id] = &grantedPermit{permit, number, time.Now().Add(maxAge(permit.Timeout()))}
	return true
}
