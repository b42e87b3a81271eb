package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/fleet"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// fleetPatience is how long Start waits for this process's lanes, which is longer than a process that was killed seems to run.
	fleetPatience = 10 * time.Second
	// lanePort is the port of EVERPOST_LANE_LISTEN=auto.
	lanePort   = 8082
	laneListen = "EVERPOST_LANE_LISTEN"
)

// makeFleet lets this process share the limits of endpoints with others, unless EVERPOST_LANE_LISTEN is off. A process without a worker shares none,
// and forwards to those that do.
func (a *App) makeFleet(ctx context.Context) (err error) {
	if !a.options.Worker {
		a.fleet, err = fleet.New(fleet.Config{Store: a.store.Lanes, ID: rand.Text(), Machine: machine(), Logger: a.log})
		return err
	}
	if !a.options.Config.SharesLimits() {
		return nil
	}
	listener, err := listenForLanes(ctx, a.life, a.store, a.options.Config.LaneListen)
	if err != nil {
		return err
	}
	a.laneListener = listener
	address := a.options.Config.LaneAddress
	if address == "" {
		if address, err = reachedAt(ctx, a.store, listener.Addr()); err != nil {
			_ = listener.Close()
			return err
		}
	}
	a.fleet, err = fleet.New(fleet.Config{
		Store: a.store.Lanes, Controller: a.admission, ID: rand.Text(), Listener: listener, Address: address, Machine: machine(), Logger: a.log,
	})
	if err != nil {
		_ = listener.Close()
	}
	return err
}

// listenForLanes listens where EVERPOST_LANE_LISTEN says. "auto" is the address of this machine on the way to PostgreSQL, with the usual
// port or, if that is taken, any free one: other processes read it in the database.
func listenForLanes(ctx, life context.Context, store *stores.DB, address string) (net.Listener, error) {
	if address != config.LaneAuto {
		return listen(life, laneListen, address)
	}
	local, err := store.LocalIP(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: the address of this machine on the way to PostgreSQL is not known: %w", laneListen, err)
	}
	l, err := listen(life, laneListen, (&net.TCPAddr{IP: local, Port: lanePort}).String())
	if errors.Is(err, syscall.EADDRINUSE) {
		l, err = listen(life, laneListen, (&net.TCPAddr{IP: local}).String())
	}
	return l, err
}

// countedForwards counts what this process forwards.
type countedForwards struct {
	*fleet.Fleet

	metrics *telemetry.Metrics
}

func (c countedForwards) Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult)) {
	c.Fleet.Forward(event, func(start webhook.Start, result webhook.ForwardResult) {
		c.metrics.Forwarded(result)
		done(start, result)
	})
}

// meterFleet shows what this process shares, or zeros.
func (a *App) meterFleet() {
	a.metrics.Gauge("everpost_lanes_owned", "Lanes of 64 that this process owns; 0 if it shares no limits.", func() float64 {
		if a.fleet == nil {
			return 0
		}
		return float64(a.fleet.Owned())
	})
	a.metrics.Gauge("everpost_lane_processes", "Processes that own lanes, as far as this one knows; 0 if they share no limits.", func() float64 {
		if a.fleet == nil {
			return 0
		}
		return float64(a.fleet.Processes())
	})
	const asked = "Permits to send a request that this process has asked the owners of other lanes for."
	a.metrics.Counter("everpost_lane_permits_asked_total", asked, func() float64 {
		if a.fleet == nil {
			return 0
		}
		return float64(a.fleet.PermitsAsked.Load())
	})
	const unreachable = "Processes that own lanes and have not been reached for 10 s, although they seem to run."
	a.metrics.Gauge("everpost_lane_processes_unreachable", unreachable, func() float64 {
		if a.fleet == nil {
			return 0
		}
		return float64(a.fleet.Unreachable())
	})
}

// startFleet takes this process's share of the lanes.
func (a *App) startFleet(ctx context.Context) error {
	if a.fleet == nil {
		return nil
	}
	if a.laneListener != nil {
		health := func(id webhook.EndpointID) webhook.Observation {
			return observedBy(a.store.Now, a.admission.Health(id))
		}
		fleet.NewServer(a.fleet, health, a.intake).Start()
	}
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	if err := a.fleet.Start(ctx); err != nil {
		return fmt.Errorf("processes that share the limits of endpoints have to reach each other: %w", err)
	}
	return nil
}

// reachedAt is where other processes reach a listener: at its own address or, if that is not a certain one, at the address that
// this machine has on the way to PostgreSQL.
func reachedAt(ctx context.Context, store *stores.DB, listener net.Addr) (string, error) {
	at, ok := listener.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return listener.String(), nil
	}
	local, err := store.LocalIP(ctx)
	if err != nil {
		return "", fmt.Errorf("EVERPOST_LANE_ADDRESS: not set, and the address of this machine on the way to PostgreSQL is not known: %w", err)
	}
	return (&net.TCPAddr{IP: local, Port: at.Port}).String(), nil
}
