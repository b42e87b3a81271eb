package recovery

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// relayEvery is how often the outbox is read.
	relayEvery = time.Second
	// lateAfter is how old a delivery is that the process which has stored it should have started.
	lateAfter = 5 * time.Second
)

// Outbox is what the relay reads.
type Outbox interface {
	// TakeStarts takes deliveries that were stored a while ago: those without a first write, and those
	// whose first write kept the outbox row (Start.Recorded). It does not return them again for a while. It assigns workflows, named
	// after the call, to those that have none.
	TakeStarts(ctx context.Context, call string, limit int) ([]webhook.Start, error)
	// ReturnStarts undoes TakeStarts for deliveries that could not be started.
	ReturnStarts(ctx context.Context, starts []webhook.Start) error
	// TakeCommands takes commands that no step has answered for a while.
	TakeCommands(ctx context.Context, limit int) ([]webhook.CommandedDelivery, error)
}

// Replays is what the relay reads of replays.
type Replays interface {
	// AdmitReplays lets queued replays run while there is room.
	AdmitReplays(ctx context.Context) error
	// TakeReplays takes replays whose workflow has recorded nothing yet, has not answered a command for
	// a while, or has recorded nothing for long.
	TakeReplays(ctx context.Context, limit int) ([]webhook.Replay, error)
}

// RelayConfig is what a relay needs. All fields are required.
type RelayConfig struct {
	Engine  *engine.Engine
	Outbox  Outbox
	Replays Replays
	Logger  *slog.Logger
}

// Relay starts what was not started, because a process died, Temporal was down or the queue was too
// long: deliveries without a workflow, commands without an answer, and replays.
//
// A round costs four reads when nothing is due: of the indexes outbox_relay, deliveries_commanded_by_tenant, replays_open and replays_relay, a few
// blocks each, of the second one in each partition. It goes on as long as batches of 200 starts are full or commands are due, so it costs by what is
// due, and never by what waits. TakeStarts reads some four blocks for each row, also by outbox_by_workflow. A batch is started in up to 8 calls at a
// time.
type Relay struct {
	engine  *engine.Engine
	outbox  Outbox
	replays Replays
	log     *slog.Logger
}

// NewRelay returns a relay that does not run.
func NewRelay(c RelayConfig) *Relay {
	return &Relay{engine: c.Engine, outbox: c.Outbox, replays: c.Replays, log: c.Logger}
}

// relayed is how much one round has relayed.
type relayed struct{ starts, commands, replays int }

// Run relays every second until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	everyTick(ctx, relayEvery, func() {
		_, _ = r.runOnce(ctx) // the error is logged, and the next round reads again
	})
}

// runOnce wakes replays, and then relays starts and commands until there are none. It relays nothing while Temporal is down. The error is that
// of a read.
func (r *Relay) runOnce(ctx context.Context) (done relayed, err error) {
	done.replays, err = r.wakeReplays(ctx)
	for more := true; more && r.engine.Health.Up(); {
		starts, commands, failed := r.relayBatch(ctx)
		done.starts, done.commands, err = done.starts+starts, done.commands+commands, errors.Join(err, failed)
		more = failed == nil && (starts >= batchSize || commands > 0)
	}
	return done, err
}

// relayBatch takes a batch of deliveries and one of commands.
func (r *Relay) relayBatch(ctx context.Context) (started, signalled int, err error) {
	starts, err := readBatch(ctx, r.log, func(ctx context.Context, limit int) ([]webhook.Start, error) {
		return r.outbox.TakeStarts(ctx, "relay/"+rand.Text(), limit)
	})
	if err != nil {
		return 0, 0, err
	}
	late := slices.DeleteFunc(slices.Clone(starts), func(start webhook.Start) bool {
		return time.Since(start.CreatedAt) < lateAfter // a replay leaves its deliveries to the relay at once
	})
	if len(late) > 0 {
		r.log.InfoContext(ctx, "starting deliveries that were not started before", "count", len(late))
	}
	// Before anything else can fail: the outbox does not return them again for a while.
	r.engine.Starts.Assigned(starts)
	if len(starts) > 0 && r.engine.Health.Down(ctx) {
		r.returnStarts(ctx, starts)
	}
	if !r.engine.Health.Up() {
		return len(starts), 0, nil
	}
	commands, err := readBatch(ctx, r.log, r.outbox.TakeCommands)
	if err != nil {
		return len(starts), 0, err
	}
	engine.ForEach(engine.ConcurrentStarts, commands, func(c webhook.CommandedDelivery) {
		r.engine.Calls.Try(func(ctx context.Context) error { return r.engine.Commands.Pass(ctx, c) })
	})
	return len(starts), len(commands), nil
}

// returnStarts returns what was taken while Temporal was going down. Some may have been started: a
// repeated start with the same id is refused, and if two workflows have a delivery, only one gets the
// claim.
func (r *Relay) returnStarts(ctx context.Context, starts []webhook.Start) {
	lasting, cancel := engine.Outlive(ctx, readTimeout)
	defer cancel()
	if err := r.outbox.ReturnStarts(lasting, starts); err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "deliveries that could not be started cannot be returned to the outbox; they are taken again later",
			"count", len(starts), "error", err)
	}
}

// wakeReplays lets queued replays run, and wakes those whose workflow does not answer.
func (r *Relay) wakeReplays(ctx context.Context) (woken int, err error) {
	if !r.engine.Health.Up() {
		return 0, nil
	}
	r.admitReplays(ctx)
	replays, err := readBatch(ctx, r.log, r.replays.TakeReplays)
	if err != nil {
		return 0, err
	}
	engine.ForEach(engine.ConcurrentStarts, replays, func(replay webhook.Replay) {
		r.engine.Calls.Try(func(ctx context.Context) error { return r.engine.Replays.WakeAgain(ctx, replay) })
	})
	return len(replays), nil
}

func (r *Relay) admitReplays(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := r.replays.AdmitReplays(reading); err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "queued replays wait longer", "error", err)
	}
}
