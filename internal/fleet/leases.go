package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// renewTimeout bounds a renewal.
	renewTimeout = 3 * time.Second
	// renewPause is the least time from one renewal to the next.
	renewPause = 100 * time.Millisecond
	// askTimeout bounds how long a process may take to say what it has under way.
	askTimeout = time.Second
)

// lane is this process's view of a lane.
type lane struct {
	owner string // the id of a process; "" for none
	epoch int64  // the highest that is known

	own         bool                // this process is the owner
	ready       bool                // and has counted what is under way
	since       time.Time           // when it became the owner
	ended       time.Time           // when the lease of the owner before ended
	unreachable map[string]struct{} // processes that have not said what they have under way
}

// holds reports whether this process's leases hold. The caller holds the lock.
func (f *Fleet) holds() bool { return time.Since(f.renewalStarted) < leaseTime }

// ownLane returns since when this process has the lane of a request's endpoint, and its epoch. False: it admits no request to it.
func (f *Fleet) ownLane(id webhook.EndpointID) (since time.Time, epoch int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.lanes[webhook.LaneOf(id)]
	return l.since, l.epoch, l.own && l.ready && f.holds()
}

// owner returns the process to ask about an endpoint, or that it is this one. Neither: there is none at present.
func (f *Fleet) owner(id webhook.EndpointID) (p *peer, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.lanes[webhook.LaneOf(id)]
	if l.own {
		return nil, l.ready && f.holds()
	}
	return f.peers[l.owner], false
}

// leases keeps the leases of this process's lanes, takes over what is under way when it gets a lane, and looks after the other processes.
type leases struct{ *Fleet }

// keepLeases renews the leases until Stop. It closes first after the first renewal that succeeds.
func (f leases) keepLeases(first chan<- struct{}) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for failing := false; ; {
		began := time.Now()
		err := f.renew()
		switch {
		case err == nil && first != nil:
			close(first)
			first = nil
		case err != nil && f.life.Err() == nil && !failing:
			f.log.WarnContext(f.life, "this process was not registered, and its lanes' leases were not renewed; it tries again every second", "error", err)
		}
		failing = err != nil
		grants(f).endExpired()
		f.checkPeers()
		select {
		case <-tick.C:
		case <-f.renewNow:
		case <-f.life.Done():
			return
		}
		pause(f.life, time.Until(began.Add(renewPause)))
	}
}

// renew renews the leases, and applies the result.
func (f leases) renew() error {
	ctx, cancel := context.WithTimeout(f.life, renewTimeout)
	defer cancel()
	self, released := f.releaseLanes()
	if len(released) > 0 {
		transfers(f).keepStates(released)
		f.dropLanes(released)
	}
	began := time.Now()
	var fleet webhook.Fleet
	var err error
	if f.ownsLanes() {
		fleet, err = f.store.Renew(ctx, self, released)
	} else {
		fleet, err = f.store.Register(ctx, self)
	}
	if err != nil {
		return err
	}
	taken, lost, gone := f.learn(&fleet, began)
	f.dropLanes(lost)
	f.dropPeers(gone)
	if len(taken) > 0 {
		f.work.Go(func() { f.takeOver(taken) })
	}
	return nil
}

// releaseLanes stops admitting requests in the lanes above this process's share, in all of them if it is leaving, and returns them: the renewal
// releases them. With them are those that the database has as this process's without its knowledge, because the answer of a renewal was lost.
func (f leases) releaseLanes() (self webhook.Process, released []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := f.share
	if f.self.Leaving {
		most = 0
	}
	released = []int{}
	kept := 0
	for i := range f.lanes {
		l := &f.lanes[i]
		switch {
		case l.own && (kept < most || f.share == 0 && !f.self.Leaving):
			kept++
		case l.own || l.owner == f.self.ID:
			l.own, l.owner = false, ""
			released = append(released, i)
		}
	}
	return f.self, released
}

// learn applies what a renewal has read. It returns the lanes that this process has taken, with their epochs, those that it
// has lost, and the processes that have ended.
func (f leases) learn(fleet *webhook.Fleet, began time.Time) (taken map[int]int64, lost []int, gone []*peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewalStarted, f.renewalEnded, f.share = began, time.Now(), fleet.Share
	for i := range fleet.Lanes {
		l, read := &f.lanes[i], &fleet.Lanes[i]
		if read.Epoch < l.epoch {
			continue // a newer owner is known
		}
		if l.own && (read.Owner != f.self.ID || read.Epoch != l.epoch) {
			lost = append(lost, i)
			*l = lane{}
		}
		l.owner, l.epoch = read.Owner, read.Epoch
	}
	taken = map[int]int64{}
	for _, t := range fleet.Taken {
		l := &f.lanes[t.Lane]
		if t.Epoch < l.epoch {
			continue // it has been lost since
		}
		now := time.Now()
		*l = lane{owner: f.self.ID, epoch: t.Epoch, own: true, since: now, ended: now.Add(-t.EndedAgo)}
		taken[t.Lane] = t.Epoch
	}
	return taken, lost, f.learnPeers(fleet.Processes)
}

// learnPeers updates the list of other processes, and returns those that have ended. The caller holds the lock.
func (f leases) learnPeers(all []webhook.Process) (gone []*peer) {
	for id, p := range f.peers {
		if !slices.ContainsFunc(all, func(other webhook.Process) bool { return other.ID == id }) {
			gone = append(gone, p)
		}
	}
	f.callers = map[[32]byte]string{}
	for _, process := range all {
		switch known := f.peers[process.ID]; {
		case process.ID == f.self.ID:
		case process.Address == "":
			f.callers[process.Certificate] = process.ID
		case known == nil:
			f.peers[process.ID] = &peer{process: process, fleet: f.Fleet, since: time.Now(), leaving: process.Leaving, dialling: make(chan struct{}, 1)}
		default:
			known.leaving = process.Leaving
		}
	}
	return gone
}

// dropPeers forgets processes that have ended. Nothing of them is under way.
func (f leases) dropPeers(gone []*peer) {
	for _, p := range gone {
		f.mu.Lock()
		if f.peers[p.process.ID] == p {
			delete(f.peers, p.process.ID)
		}
		for i := range f.lanes {
			delete(f.lanes[i].unreachable, p.process.ID)
		}
		f.mu.Unlock()
		p.close()
		grants(f).endGrantsOf(func(id grantID, _ *grantedPermit) bool { return id.Process == p.process.ID })
	}
}

// dropLanes drops the controller's state of lanes that are another process's from now on.
func (f leases) dropLanes(lanes []int) {
	if len(lanes) == 0 {
		return
	}
	f.controller.Drop(func(id webhook.EndpointID) bool { return slices.Contains(lanes, webhook.LaneOf(id)) })
	grants(f).endGrantsOf(func(_ grantID, granted *grantedPermit) bool { return slices.Contains(lanes, granted.lane) })
}

// takeOver finds out what is under way in lanes that this process has taken, and admits requests from then on.
func (f leases) takeOver(taken map[int]int64) {
	f.dropLanes(slices.Collect(maps.Keys(taken))) // of an earlier time as their owner
	transfers(f).importTransfer(f.self.ID, taken, transfers(f).transferLanes(taken, f.self.ID))
	unreachable := f.collect(taken, f.otherProcesses())
	f.mu.Lock()
	defer f.mu.Unlock()
	for number, epoch := range taken {
		l := &f.lanes[number]
		if !l.own || l.epoch != epoch {
			continue
		}
		l.ready, l.unreachable = true, map[string]struct{}{}
		for _, p := range unreachable {
			if f.peers[p.process.ID] == p {
				l.unreachable[p.process.ID] = struct{}{}
			}
		}
	}
}

func (f *Fleet) otherProcesses() (all []*peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.peers {
		all = append(all, p)
	}
	return all
}

// collect asks processes what they have under way in lanes that this process has taken. It returns those that do not answer.
func (f leases) collect(taken map[int]int64, from []*peer) (unreachable []*peer) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range from {
		asking.Go(func() {
			err := f.collectFrom(taken, p)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			unreachable = append(unreachable, p) // if it has ended, it is forgotten soon
		})
	}
	asking.Wait()
	return unreachable
}

func (f leases) collectFrom(taken map[int]int64, p *peer) error {
	ctx, cancel := context.WithTimeout(f.life, askTimeout)
	defer cancel()
	var reply LaneTransfer
	if err := p.call(ctx, methodTransfer, &TransferArgs{taken}, &reply); err != nil {
		return err
	}
	transfers(f).importTransfer(p.process.ID, taken, reply)
	return nil
}

// collectAgain asks a process once more that did not answer when lanes were taken.
func (f leases) collectAgain(p *peer) {
	taken := map[int]int64{}
	f.mu.Lock()
	for i := range f.lanes {
		if _, is := f.lanes[i].unreachable[p.process.ID]; is {
			taken[i] = f.lanes[i].epoch
		}
	}
	f.mu.Unlock()
	if len(taken) == 0 || f.collectFrom(taken, p) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, epoch := range taken {
		if l := &f.lanes[i]; l.epoch == epoch {
			delete(l.unreachable, p.process.ID)
		}
	}
}

// blockedFor is how long no request is admitted to an endpoint: the owner before may have admitted some for processes that do not answer
// now. limit is the endpoint's longest timeout.
func (f *Fleet) blockedFor(id webhook.EndpointID, limit time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.lanes[webhook.LaneOf(id)]
	if len(l.unreachable) == 0 {
		return 0
	}
	return max(time.Until(l.ended.Add(maxAge(limit))), 0)
}
