package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	"github.com/everpost/everpost/internal/fleet"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// fleetPatience is how long Start waits for this process's lanes.
const fleetPatience = 5 * time.Second

// makeFleet lets this process share the limits of endpoints with others, if EVERPOST_LANE_LISTEN is set. A process without a worker shares none,
// and forwards to those that do.
func (a *App) makeFleet(ctx context.Context) (err error) {
	if !a.options.Worker {
		a.fleet, err = fleet.New(fleet.Config{Store: a.store.Lanes, ID: rand.Text(), Logger: a.log})
		return err
	}
	if a.options.Config.LaneListen == "" {
		return nil
	}
	listener, err := listen(a.life, "EVERPOST_LANE_LISTEN", a.options.Config.LaneListen) //nolint:contextcheck // outlives the context of Start
	if err != nil {
		return err
	}
	a.laneListener = listener
	address := a.options.Config.LaneAddress
	if address == "" {
		if address, err = a.reachedAt(ctx, listener.Addr()); err != nil {
			_ = listener.Close()
			return err
		}
	}
	a.fleet, err = fleet.New(fleet.Config{
		Store: a.store.Lanes, Controller: a.admission, ID: rand.Text(), Listener: listener, Address: address,
		Health: func(id webhook.EndpointID) webhook.Observation {
			return observedBy(a.store.Now, a.admission.Health(id))
		},
		OnHeld:      func(id webhook.EndpointID) { a.starter.NoteHeld(id) },
		OnTaken:     func() { a.starter.LanesTaken() },
		OnForwarded: func(event webhook.Accepted) ([]webhook.DeliveryID, bool) { return a.starter.Forwarded(event) },
		Logger:      a.log,
	})
	if err != nil {
		_ = listener.Close()
	}
	return err
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

// startFleet takes this process's share of the lanes.
func (a *App) startFleet(ctx context.Context) error {
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
	if a.fleet == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	if err := a.fleet.Start(ctx); err != nil {
		return fmt.Errorf("EVERPOST_LANE_ADDRESS: this process does not reach itself there: %w", err)
	}
	a.push(phaseLanes, a.fleet.Stop)
	return nil
}

// reachedAt is where other processes reach a listener: at its own address or, if that is not a certain one, at the address that
// this machine has on the way to PostgreSQL.
func (a *App) reachedAt(ctx context.Context, listener net.Addr) (string, error) {
	at, ok := listener.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return listener.String(), nil
	}
	local, err := a.store.LocalIP(ctx)
	if err != nil {
		return "", fmt.Errorf("EVERPOST_LANE_ADDRESS: not set, and the address of this machine on the way to PostgreSQL is not known: %w", err)
	}
	return (&net.TCPAddr{IP: local, Port: at.Port}).String(), nil
}
