package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// warnEvery is how often the log names a process that cannot be reached.
const warnEvery = time.Minute

// awaitReachable waits until no process runs that this one cannot reach, or that cannot reach this one, because one of the two has the
// address of a loopback interface and the other is on another machine. One that was killed still seems to run for a few seconds. If the database
// cannot be read, nothing is known, and the renewals find out.
func (f leases) awaitReachable(ctx context.Context) (err error) {
	for {
		var owners []webhook.Process
		if owners, err = f.store.Owners(ctx); err != nil {
			return nil //nolint:nilerr // see above
		}
		if err = f.apart(owners); err == nil || !pause(ctx, renewEvery) {
			return err
		}
	}
}

// apart returns an error for a process that cannot be reached, or cannot reach this one.
func (f leases) apart(owners []webhook.Process) error {
	for i := range owners {
		other := &owners[i]
		switch {
		case other.ID == f.self.ID, other.Machine == "", other.Machine == f.self.Machine:
		case f.self.IsLocal():
			return fmt.Errorf("other processes would reach this one at %s, but one runs on another machine or in another network, at %s: "+
				"set EVERPOST_LANE_LISTEN to an address of this machine that it reaches, or EVERPOST_LANE_ADDRESS, or EVERPOST_LANE_LISTEN=off on all of them",
				f.self.Address, other.Address)
		case other.IsLocal():
			return fmt.Errorf("a process runs on another machine or in another network, and has registered %s, where this one does not reach it: "+
				"set EVERPOST_LANE_LISTEN there to an address that other machines reach, or EVERPOST_LANE_ADDRESS", other.Address)
		}
	}
	return nil
}

// noteReached notes whether a process was reached that may own lanes, and logs it if not, once a minute.
func (p *peer) noteReached(ctx context.Context, err error) {
	p.mu.Lock()
	now := time.Now()
	var since time.Duration
	switch {
	case err == nil:
		p.unreachedSince, p.warnedAt = time.Time{}, time.Time{}
	case p.unreachedSince.IsZero():
		p.unreachedSince = now
	default:
		since = now.Sub(p.unreachedSince)
	}
	warn := since >= unreachedTime && now.Sub(p.warnedAt) >= warnEvery
	if warn {
		p.warnedAt = now
	}
	p.mu.Unlock()
	if warn {
		p.fleet.log.WarnContext(ctx, "a process cannot be reached from this one: deliveries to its endpoints wait here (no_owner) until any worker takes them",
			"address", p.process.Address, "process", p.process.ID, "for", since.Round(time.Second), "error", err)
	}
}

// unreachedTime is for how long a process may be out of reach before that is worth a word: it may have ended.
const unreachedTime = 10 * time.Second

// Unreachable is how many processes that may own lanes this one has not reached for a while, although they seem to run.
func (f *Fleet) Unreachable() (n int) {
	for _, p := range f.otherProcesses() {
		p.mu.Lock()
		if !p.unreachedSince.IsZero() && time.Since(p.unreachedSince) >= unreachedTime {
			n++
		}
		p.mu.Unlock()
	}
	return n
}
