package fleet

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// permits are those that this process has, of its own controller and of other owners.
type permits struct{ *Fleet }

// obtainedPermit is a permit that this process has, from whichever owner.
type obtainedPermit struct {
	request admission.Request
	epoch   int64     // of the lane's owner that gave it
	asked   time.Time // when it was asked for
	timeout time.Duration
	own     *admission.Permit // that of this process's controller; nil if another process gave it
}

// maxAge is how long after it was asked for a permit's request can be under way at most.
func maxAge(timeout time.Duration) time.Duration { return usableTime + timeout + overtime }

// obtain makes the permit of this process for one that an owner has granted. Nil if it is void: the lane has had another owner
// since, which does not count it, or this process's lease has ended.
func (f permits) obtain(number uint64, p obtainedPermit) *admission.Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.lanes[webhook.LaneOf(p.request.Endpoint)]
	if l.epoch > p.epoch || p.own != nil && (!l.own || !f.holds()) {
		return nil
	}
	f.obtained[number] = p
	return admission.NewPermit(p.own, p.timeout, p.asked.Add(usableTime), func(r *admission.Result) { f.endObtained(number, r) })
}

// endObtained ends a permit of this process. If the lane has changed its owner, its new owner counts the request as well, and gets the result.
func (f permits) endObtained(number uint64, r *admission.Result) {
	f.mu.Lock()
	p := f.obtained[number]
	delete(f.obtained, number)
	l := &f.lanes[webhook.LaneOf(p.request.Endpoint)]
	sameOwner := l.own && l.epoch == p.epoch
	f.mu.Unlock()
	if p.own != nil {
		end(p.own, r)
		if sameOwner {
			return
		}
	}
	f.reportEnd(p.request.Endpoint, number, p.timeout, r)
}

func end(p *admission.Permit, r *admission.Result) {
	if r != nil {
		p.Done(*r)
	} else {
		p.Cancel()
	}
}

// reportEnd reports the end of a request to the owner of the endpoint's lane. It waits a moment for the answer, so that a circuit is
// open before the failure that opens it is recorded. The slot stays taken until the report arrives, or the permit expires.
func (f permits) reportEnd(endpoint webhook.EndpointID, number uint64, timeout time.Duration, r *admission.Result) {
	args := EndArgs{Number: number, Endpoint: endpoint}
	if r != nil {
		args.Sent, args.Result = true, *r
	}
	ctx, cancel := context.WithTimeout(f.life, endPatience)
	defer cancel()
	if f.tryReportEnd(ctx, &args) {
		return
	}
	f.work.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, maxAge(timeout))
		defer cancel()
		for !f.tryReportEnd(ctx, &args) {
			if !pause(ctx, retryPause) {
				return
			}
		}
	})
}

// tryReportEnd sends one report. A repeated one does no harm.
func (f permits) tryReportEnd(ctx context.Context, args *EndArgs) (done bool) {
	p, own := f.owner(args.Endpoint)
	if own {
		var r *admission.Result
		if args.Sent {
			r = &args.Result
		}
		grants(f).endGrant(grantID{f.self.ID, args.Number}, webhook.LaneOf(args.Endpoint), r)
		return true
	}
	if p == nil {
		return false
	}
	reply := &EndReply{}
	if p.call(ctx, methodEnd, args, reply) != nil || reply.NotOwner {
		return false
	}
	f.forecasts.put(args.Endpoint, reply.Forecast)
	return true
}

// endPatience is how long the end of a request waits for the owner's answer.
const endPatience = 100 * time.Millisecond

// retryPause is the pause before another process is asked again.
const retryPause = 50 * time.Millisecond

// pause waits, and returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
