package app

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// closingsEvery is how often a worker looks, while one of its circuits is open, for those
	// that a person has closed.
	closingsEvery = time.Second
	// closingsTimeout bounds one look.
	closingsTimeout = 5 * time.Second
)

// watchClosings closes the circuits of this process that a person has closed by whichever
// process.
func (a *App) watchClosings(ctx context.Context) {
	tick := time.NewTicker(a.closingsEvery)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		open := a.gate.OpenCircuits()
		if len(open) == 0 {
			continue
		}
		err := a.carryOutClosings(ctx, open)
		if err != nil && !failed && ctx.Err() == nil {
			a.log.WarnContext(ctx, "it cannot be read which circuits people have closed; trying on", "error", err)
		}
		failed = err != nil
	}
}

func (a *App) carryOutClosings(ctx context.Context, open []webhook.EndpointID) error {
	ctx, cancel := context.WithTimeout(ctx, closingsTimeout)
	defer cancel()
	closed, err := a.store.EndpointHealth.CircuitClosings(ctx, open)
	if err != nil {
		return err
	}
	for id, at := range closed {
		a.gate.CloseCircuit(id, at)
	}
	return nil
}
