package dispatch

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// call makes one call to Temporal and notes what it came to.
func (d *Dispatcher) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(d.life, startTimeout)
	defer cancel()
	if err := f(ctx); d.life.Err() == nil { // else Stop has cut it off
		d.note(err)
	}
}

// note looks at what a call came to. When Temporal cannot be reached, nothing is
// queued until it answers again. One call that was not answered in time is no proof:
// a busy Temporal is not away, and a door that took it for that would let in more.
func (d *Dispatcher) note(err error) {
	switch {
	case err == nil, isGone(err): // gone: not started yet, or ended; the record knows the command
	case isUnavailable(err):
		d.setAway(err)
	case isLate(err):
		select {
		case d.doubt <- struct{}{}:
		default:
		}
	default:
		d.Logger.Error("Temporal refused a call; it will be repeated from the outbox", "error", err)
	}
}

func isGone(err error) bool {
	_, ok := errors.AsType[*serviceerror.NotFound](err)
	return ok
}

func isUnavailable(err error) bool {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	return unavailable
}

func isLate(err error) bool {
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return late || errors.Is(err, context.DeadlineExceeded)
}

func (d *Dispatcher) setAway(err error) {
	if d.away.CompareAndSwap(false, true) {
		d.Logger.Warn("Temporal does not answer; events are still accepted and will be delivered when it is back", "error", err)
	}
}

// probe asks Temporal whether it is there. A start in need would find out too, but
// only after its timeout, with a queue growing behind it.
func (d *Dispatcher) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(d.life, probeTimeout)
		_, err := d.Client.CheckHealth(ctx, &client.CheckHealthRequest{})
		cancel()
		switch {
		case d.stopping():
			return
		case err != nil:
			d.setAway(err)
		case d.away.CompareAndSwap(true, false):
			d.Logger.Info("Temporal answers again")
		}
		select {
		case <-d.stopped:
			return
		case <-d.doubt:
		case <-tick.C:
		}
	}
}
