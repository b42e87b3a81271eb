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

// givenID names a permit: the process that has it, and its number there.
type givenID struct {
	Process string
	Number  uint64
}

// givenPermit is a permit of this process's controller that another process has, or one that was given by the owner of a lane
// before this process.
type givenPermit struct {
	permit  *admission.Permit // nil: it ended before it was known
	lane    int
	expires time.Time // it is no longer under way then, whatever became of it
}

// maxAge is how long after it was asked for a permit's request can be under way at most.
func maxAge(timeout time.Duration) time.Duration { return usableTime + timeout + overtime }

// obtain makes the permit of this process for one that an owner has given. Nil if it is void: the lane has had another owner
// since, which does not know of it.
func (f *Fleet) obtain(number uint64, p obtainedPermit) *admission.Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lanes[webhook.LaneOf(p.request.Endpoint)].epoch > p.epoch {
		return nil
	}
	f.obtained[number] = p
	return admission.NewPermit(p.timeout, p.asked.Add(usableTime), func(r *admission.Result) { f.endObtained(number, r) })
}

// endObtained ends a permit of this process. If the lane has changed its owner, the new owner counts the request as well, and is told.
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
	f.endElsewhere(p.request.Endpoint, number, p.timeout, r)
}

// endGiven ends a permit that a process has. One that is not known yet is void when it comes.
func (f *Fleet) endGiven(id givenID, lane int, r *admission.Result) {
	f.mu.Lock()
	given := f.given[id]
	if given == nil {
		f.given[id] = &givenPermit{lane: lane, expires: time.Now().Add(maxAge(webhook.MaxTimeout))}
	} else {
		delete(f.given, id)
	}
	f.mu.Unlock()
	if given != nil && given.permit != nil {
		end(given.permit, r)
	}
}

func end(p *admission.Permit, r *admission.Result) {
	if r != nil {
		p.Done(*r)
	} else {
		p.Cancel()
	}
}

// endGivenOf cancels the given permits that which selects.
func (f *Fleet) endGivenOf(which func(givenID, *givenPermit) bool) {
	var gone []*admission.Permit
	f.mu.Lock()
	for id, given := range f.given {
		if which(id, given) {
			delete(f.given, id)
			if given.permit != nil {
				gone = append(gone, given.permit)
			}
		}
	}
	f.mu.Unlock()
	for _, p := range gone {
		p.Cancel()
	}
}

// endExpired cancels the given permits whose requests cannot be under way any more: the process that had them has
// not said so.
func (f *Fleet) endExpired() {
	now := time.Now()
	f.endGivenOf(func(_ givenID, given *givenPermit) bool { return now.After(given.expires) })
}

// HandOver is what the new owner of lanes learns from another process.
type HandOver struct {
	UnderWay []UnderWay
	States   []admission.State // from the owner before
}

// UnderWay is a permit that a process has.
type UnderWay struct {
	Number  uint64
	Request admission.Request
	Age     time.Duration // since it was asked for
	Timeout time.Duration
}

// handOver lists for the new owner of lanes what this process has under way in them, and what it has learnt as the owner before.
// From now on no permit of an owner before the new one is taken.
func (f *Fleet) handOver(taken map[int]int64, by string) (h HandOver) {
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
				h.States = append(h.States, s)
			}
			delete(f.released, number)
		}
	}
	for number, p := range f.obtained {
		if epoch, is := taken[webhook.LaneOf(p.request.Endpoint)]; is && p.epoch < epoch {
			h.UnderWay = append(h.UnderWay, UnderWay{number, p.request, now.Sub(p.asked), p.timeout})
		}
	}
	f.mu.Unlock()
	f.forgetLanes(lost)
	return h
}

// takeIn takes in what a process hands over of lanes that this process has taken.
func (f *Fleet) takeIn(process string, taken map[int]int64, h HandOver) {
	now := time.Now()
	for _, s := range h.States {
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
	f.adopt(process, taken, h.UnderWay)
}

// releasedLane is what this process has learnt as the owner of a lane that it has released.
type releasedLane struct {
	epoch  int64
	states []admission.State
	at     time.Time
}

// keepStates keeps what was learnt of lanes that are released, for their next owners.
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
func (f *Fleet) adopt(process string, taken map[int]int64, all []UnderWay) {
	now := time.Now()
	for _, u := range all {
		number := webhook.LaneOf(u.Request.Endpoint)
		u.Request.Since = now
		permit := f.controller.Adopt(u.Request, u.Age, u.Timeout)
		id := givenID{process, u.Number}
		f.mu.Lock()
		_, known := f.given[id]
		_, here := f.obtained[u.Number]
		l := &f.lanes[number]
		wanted := !known && l.own && l.epoch == taken[number] && (here || process != f.self.ID)
		if wanted {
			f.given[id] = &givenPermit{permit, number, now.Add(maxAge(u.Timeout) - u.Age)}
		}
		f.mu.Unlock()
		if !wanted {
			permit.Cancel()
		}
	}
}

// endElsewhere tells the owner of an endpoint's lane that a request has ended, and waits a moment for its answer, so that
// what follows a failure holds before the failure is recorded. Until the owner knows, or the permit expires, the slot is taken.
func (f *Fleet) endElsewhere(endpoint webhook.EndpointID, number uint64, timeout time.Duration, r *admission.Result) {
	args := EndArgs{Number: number, Endpoint: endpoint}
	if r != nil {
		args.Sent, args.Result = true, *r
	}
	ctx, cancel := context.WithTimeout(f.life, endPatience)
	defer cancel()
	if f.tryEnd(ctx, &args) {
		return
	}
	f.work.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, maxAge(timeout))
		defer cancel()
		for !f.tryEnd(ctx, &args) {
			if !pause(ctx, retryPause) {
				return
			}
		}
	})
}

// tryEnd tells the owner once. To be told again does no harm.
func (f *Fleet) tryEnd(ctx context.Context, args *EndArgs) (done bool) {
	p, own := f.owner(args.Endpoint)
	if own {
		var r *admission.Result
		if args.Sent {
			r = &args.Result
		}
		f.endGiven(givenID{f.self.ID, args.Number}, webhook.LaneOf(args.Endpoint), r)
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
