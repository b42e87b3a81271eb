package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// transfers move what is known of lanes from an owner to the next one.
type transfers struct{ *Fleet }

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
func (f transfers) transferLanes(taken map[int]int64, by string) (t LaneTransfer) {
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
	leases(f).dropLanes(lost)
	return t
}

// importTransfer applies what a process transfers of lanes that this process has taken.
func (f transfers) importTransfer(process string, taken map[int]int64, t LaneTransfer) {
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
func (f transfers) keepStates(lanes []int) {
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
func (f transfers) adopt(process string, taken map[int]int64, all []InFlightRequest) {
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
