package admission

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Config is what a Controller needs. The zero value is usable.
type Config struct {
	// Now is the clock. Defaults to time.Now. Timers follow the real one.
	Now func() time.Time
	// MaxEndpoints is how many endpoints are kept; above it, those that have been idle for
	// longest are forgotten at once, in whatever state they are. Defaults to 100,000, which
	// is about 100 MB; half as much again if all have automatic timeouts.
	MaxEndpoints int
	// MaxReserved is how many reservations a tenant has that is alone, beside the few that each endpoint always has. Others have a
	// fifteenth more, and tenants that need many have the same number each. Defaults to 250,000, which is about 25 MB.
	MaxReserved int
	// MaxInFlightPerHost is how many requests at a time go to one host, whichever endpoints
	// they are of. 0 is no limit.
	MaxInFlightPerHost int
	// Random returns a number in [0, 1). Defaults to math/rand/v2's.
	Random func() float64
	// OnCircuitChange is called with each change of a circuit, without a lock. It must be
	// quick. May be nil.
	OnCircuitChange func(webhook.CircuitChange)
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.MaxEndpoints <= 0 {
		c.MaxEndpoints = 100_000
	}
	if c.MaxReserved <= 0 {
		c.MaxReserved = 250_000
	}
	return c
}

// environment is what the endpoints of a Controller share.
type environment struct {
	config   Config
	base     time.Time // the beginning of all times
	reserved reserved
	inside   atomic.Int64 // deliveries waiting in Acquire, of all endpoints

	// With a limit per host, a slot that one endpoint gives back may be another's: hostsLock is then
	// the lock of all endpoints, and of hosts.
	hostsLock lock
	hosts     map[string]*host
}

func (v *environment) now() time.Duration { return v.config.Now().Sub(v.base) }

func (v *environment) time(at time.Duration) time.Time { return v.base.Add(at) }

// host finds or makes one; nil for "" and where hosts are not limited.
func (v *environment) host(name string) *host {
	if name == "" || v.config.MaxInFlightPerHost <= 0 {
		return nil
	}
	h := v.hosts[name]
	if h == nil {
		limit := v.config.MaxInFlightPerHost
		h = &host{name: name, limit: limit, interval: unknownLatency / time.Duration(limit)}
		v.hosts[name] = h
	}
	return h
}

// forgetHost drops a host that no endpoint has and to which nothing is in flight.
func (v *environment) forgetHost(h *host) {
	if h.endpoints == 0 && h.inFlight == 0 {
		delete(v.hosts, h.name)
	}
}

// lock guards endpoints. It collects the changes of circuits; unlock reports them.
type lock struct {
	sync.Mutex

	changes []webhook.CircuitChange
}

// unlock gives the lock back, then reports the changes of circuits.
func (l *lock) unlock(report func(webhook.CircuitChange)) {
	changes := l.changes
	l.changes = nil
	l.Unlock()
	if report == nil {
		return
	}
	for _, change := range changes {
		report(change)
	}
}
