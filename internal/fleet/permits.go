package fleet

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// obtainedPermit is a permit that this process has, from whichever owner.
type obtainedPermit struct {
	request admission.Request
	epoch   int64     // of the lane's owner that gave it
	asked   time.Time // when it was asked for
	timeout time.Duration
	own     *admission.Permit // that of this process's controller; nil if another process gave it
}

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

// maxAge is how long after it was asked for a permit's request can be under way at most.
func maxAge(timeout time.Duration) time.Duration { return usableTime + timeout + overtime }

// obtain makes the permit of this process for one that an owner has granted. Nil if it is void: the lane has had another owner
// since, which does not count it, or this process's lease has ended.
func (f *Fleet) obtain(number uint64, p obtainedPermit) *admission.Permit {
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
func (f *Fleet) endObtained(number uint64, r *admission.Result) {
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

// endGrant ends a permit that a process has. One that is not known yet is void when it comes.
func (f *Fleet) endGrant(id grantID, lane int, r *admission.Result) {
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
func (f *Fleet) loseGrantsOf(process string) {
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

func end(p *admission.Permit, r *admission.Result) {
	if r != nil {
		p.Done(*r)
	} else {
		p.Cancel()
	}
}

// endGrantsOf cancels the granted permits that which selects.
func (f *Fleet) endGrantsOf(which func(grantID, *grantedPermit) bool) {
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
func (f *Fleet) endExpired() {
	now := time.Now()
	f.endGrantsOf(func(_ grantID, granted *grantedPermit) bool { return now.After(granted.expires) })
}

// LaneTransfer is what the new owner of lanes gets from another process.
type LaneTransfer struct {
	InFlight []InFlightRequest
	States   []admission.State // from the owner before
}

// InFlightRequest is a permit that a process has.
type InFlightRequest struct {
	Number  uint64
	Request admission.Request
	Age     time.Duration // since it was asked for
	Timeout time.Duration
}

// transferLanes lists for the new owner of lanes what this process has under way in them, and their states if it was the owner before.
// From now on no permit of an owner before the new one is taken.
func (f *Fleet) transferLanes(taken map[int]int64, by string) (t LaneTransfer) {
	var lost []int
	f.mu.Lock()
	now := time.Now()
	for number, epoch := range taken {
		if number < 0 || number >= webhook.Lanes {
			continue
		}
		if l := &f.lanes[number]; epoch > l.epoch {
			if l.own {
				lost = append(lost, number)
			}
			*l = lane{owner: by, epoch: epoch}
		}
		if r := f.released[number]; r.epoch+1 == epoch {
			for _, s := range r.states {
				s.Age = now.Sub(r.at)
				t.States = append(t.States, s)
			}
			delete(f.released, number)
		}
	}
	for number, p := range f.obtained {
		if epoch, is := taken[webhook.LaneOf(p.request.Endpoint)]; is && p.epoch < epoch {
			t.InFlight = append(t.InFlight, InFlightRequest{number, p.request, now.Sub(p.asked), p.timeout})
		}
	}
	f.mu.Unlock()
	f.dropLanes(lost)
	return t
}

// importTransfer applies what a process transfers of lanes that this process has taken.
func (f *Fleet) importTransfer(process string, taken map[int]int64, t LaneTransfer) {
	now := time.Now()
	for _, s := range t.States {
		number := webhook.LaneOf(s.Request.Endpoint)
		f.mu.Lock()
		l := &f.lanes[number]
		wanted := l.own && !l.ready && l.epoch == taken[number]
		f.mu.Unlock()
		if wanted {
			s.Request.Since = now
			f.controller.Import(s)
		}
	}
	f.adopt(process, taken, t.InFlight)
}

// releasedLane has the states of the endpoints in a lane that this process has released.
type releasedLane struct {
	epoch  int64
	states []admission.State
	at     time.Time
}

// keepStates keeps the states of the endpoints in lanes that are released, for their next owners.
func (f *Fleet) keepStates(lanes []int) {
	states := map[int][]admission.State{}
	for _, s := range f.controller.Export(func(id webhook.EndpointID) bool { return slices.Contains(lanes, webhook.LaneOf(id)) }) {
		lane := webhook.LaneOf(s.Request.Endpoint)
		states[lane] = append(states[lane], s)
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.released, func(_ int, r releasedLane) bool { return now.Sub(r.at) > releasedTime })
	for _, lane := range lanes {
		f.released[lane] = releasedLane{f.lanes[lane].epoch, states[lane], now}
	}
}

// releasedTime is for how long the states of a released lane are kept for its next owner.
const releasedTime = 10 * time.Second

// adopt counts the requests that a process has under way in lanes that this process has taken.
func (f *Fleet) adopt(process string, taken map[int]int64, all []InFlightRequest) {
	now := time.Now()
	for _, u := range all {
		number := webhook.LaneOf(u.Request.Endpoint)
		u.Request.Since = now
		permit := f.controller.Adopt(u.Request, u.Age, u.Timeout)
		id := grantID{process, u.Number}
		f.mu.Lock()
		_, known := f.granted[id]
		_, here := f.obtained[u.Number]
		l := &f.lanes[number]
		wanted := !known && l.own && l.epoch == taken[number] && (here || process != f.self.ID)
		if wanted {
			f.granted[id] = &grantedPermit{permit, number, now.Add(maxAge(u.Timeout) - u.Age)}
		}
		f.mu.Unlock()
		if !wanted {
			permit.Cancel()
		}
	}
}

// reportEnd reports the end of a request to the owner of the endpoint's lane. It waits a moment for the answer, so that a circuit is
// open before the failure that opens it is recorded. The slot stays taken until the report arrives, or the permit expires.
func (f *Fleet) reportEnd(endpoint webhook.EndpointID, number uint64, timeout time.Duration, r *admission.Result) {
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
func (f *Fleet) tryReportEnd(ctx context.Context, args *EndArgs) (done bool) {
	p, own := f.owner(args.Endpoint)
	if own {
		var r *admission.Result
		if args.Sent {
			r = &args.Result
		}
		f.endGrant(grantID{f.self.ID, args.Number}, webhook.LaneOf(args.Endpoint), r)
		return true
	}
	if p == nil {
		return false
	}
	reply := &EndReply{}
	if p.call(ctx, methodEnd, args, reply) != nil || reply.NotOwner {
		return false
	}
	f.remember(args.Endpoint, reply.Forecast)
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
