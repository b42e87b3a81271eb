package starter

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// relayEvery is how often the outbox is read, relayBatch how much is read at a time.
	relayEvery = time.Second
	relayBatch = 200
)

// Outbox is what the relay reads.
type Outbox interface {
	Starts
	// TakeCommands takes commands that no step has answered for a while.
	TakeCommands(ctx context.Context, limit int) ([]webhook.CommandedDelivery, error)
	// MakeDue lets TakeStarts return deliveries at once.
	MakeDue(ctx context.Context, ids []webhook.DeliveryID) error
}

// Starts are the deliveries whose workflows are still to be started.
type Starts interface {
	// TakeStarts takes deliveries that were stored a while ago: those without a first write, and those
	// whose first write kept the outbox row (Start.Recorded). It does not return them again for a while. It assigns workflows, named
	// after the call, to those that have none.
	TakeStarts(ctx context.Context, call string, limit int) ([]webhook.Start, error)
	// DeleteRecorded deletes the rows of deliveries that are recorded and whose workflow has been started.
	DeleteRecorded(ctx context.Context, ids []webhook.DeliveryID) error
	// ReturnStarts undoes TakeStarts for deliveries that could not be started.
	ReturnStarts(ctx context.Context, starts []webhook.Start) error
}

// relay starts what was not started, because a process died, Temporal was down or the queue was too
// long: deliveries without a workflow, commands without an answer, and replays.
func (s *Starter) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-tick.C:
		}
		s.relayReplays()
		for more := true; more; {
			more = s.relayOnce()
		}
	}
}

// relayOnce takes a batch of deliveries and one of commands. It reports whether there may be more.
func (s *Starter) relayOnce() bool {
	if s.temporalDown.Load() {
		return false
	}
	starts, err := readBatch(s, func(ctx context.Context, limit int) ([]webhook.Start, error) {
		return s.outbox.TakeStarts(ctx, "relay/"+rand.Text(), limit)
	})
	if err != nil {
		return false
	}
	late := slices.DeleteFunc(slices.Clone(starts), func(start webhook.Start) bool {
		return time.Since(start.CreatedAt) < queueTime // a replay leaves its deliveries to the relay at once
	})
	if len(late) > 0 {
		s.log.Info("starting deliveries that were not started before", "count", len(late))
	}
	// Before anything else can fail: the outbox does not return them again for a while.
	s.startAssigned(starts)
	if len(starts) > 0 && s.isDown(s.life) {
		s.returnStarts(starts)
	}
	if s.temporalDown.Load() {
		return false
	}
	commands, err := readBatch(s, s.outbox.TakeCommands)
	if err != nil {
		return false
	}
	forEach(concurrentStarts, commands, func(c webhook.CommandedDelivery) {
		s.tryCall(func(ctx context.Context) error { return s.passCommand(ctx, c) })
	})
	return (len(starts) >= relayBatch || len(commands) == relayBatch) && !s.temporalDown.Load()
}

// returnStarts returns what was taken while Temporal was going down. Some may have been started: a
// repeated start with the same id is refused, and if two workflows have a delivery, only one gets the
// claim.
func (s *Starter) returnStarts(starts []webhook.Start) {
	ctx, cancel := context.WithTimeout(s.life, readTimeout)
	defer cancel()
	if err := s.outbox.ReturnStarts(ctx, starts); err != nil && !s.stopping() {
		s.log.Warn("deliveries that could not be started cannot be returned to the outbox; they are taken again later", "count", len(starts), "error", err)
	}
}
