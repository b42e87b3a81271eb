// Package recovery goes on with deliveries that nothing goes on with: because a process died, Temporal was away, or PostgreSQL was, or because
// they were held and their endpoint can be sent to again.
//
// Each loop runs in Run until its context ends, and does all its work in runOnce. Several processes run the same loops at a
// time: what a read of PostgreSQL hands out it hands out to one of them, and not again for a while.
//
// # What happens after a crash
//
// A delivery is always in exactly one place, and each place has one loop that finds what was dropped there:
//
//	          start                  first step            outcome
//	commit ─────────▶ outbox row ──────────────▶ workflow ─────────▶ ended
//	                   │      ▲                   │  ▲  │
//	          relay ───┘      │ release           │  │  └─ a person's command: relay
//	                          │                   │  │
//	                        held row ◀────────────┘  └──── reconciler
//
// By the point at which the process dies:
//
//	before the commit         nothing is stored, and the caller has no 202
//	commit … start            the outbox row is left. The relay starts the delivery.
//	start … first step        the row is left, because the statement that writes the first step deletes it. A delivery that the
//	                          relay starts alone is refused, as there is a workflow of the id; if that has ended without a step, the
//	                          relay revives it. Several get another shared workflow, and the claims decide which of the two sends
//	claim … outcome           the claim is left. The workflow, in another process, waits for the end of the claim and sends again
//	outcome … recorded        as above: a receiver may get a request twice, with the same webhook-id
//	recorded eagerly … start  the row is left with Start.Recorded. The relay starts the own workflow, and then deletes the row
//	in a gathering            the attempts are recorded and nothing is left to be done: only the workflow that shows it is missing
//	between two steps         nothing is lost: Temporal has the timer, and gives the task to another worker
//	command … signal          the command is in the row. The relay signals it until a step has answered it
//	release … start           the release has written an outbox row. The relay starts the delivery in the workflow that the row names
//	replay … page             the replay's row says where it was. The relay wakes its workflow
//
// If Temporal has lost a workflow, or a person has terminated it, no row is due. The reconciler compares what is overdue with Temporal.
//
// # How long that takes
//
//	start     = relay_at + (0 … relayEvery),        relay_at = begin of the transaction + 8 s, then after 8 s · 2^n, 8.5 min at most
//	overdue   = due_at + 2 min + (0 … ReconcileEvery), and for what was lost with this process's predecessor 20 s after Run
//	held      = end of the hold + (0 … releaseEvery), if the endpoint has room and its release is not paced
//
// The 8 s must be longer than the time that any other start may take, or each delivery would be started twice as a rule: a delivery waits up
// to 5 s in the queue of the process that has stored it, and a call takes up to 5 s, but a process that waits so long for one is not
// overtaken often. A second start is harmless: of the two workflows only the one that gets the claim sends.
//
// The files, from the bottom up:
//
//	recovery    batches and ticks
//	faults      internal faults of endpoints, and checks whether they have ended
//	relay       outbox, commands, replays
//	reconciler  what has lost its workflow
//	course      how a release has gone so far
//	release     held deliveries
//	expiry      held deliveries to be given up
package recovery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/engine"
)

const (
	// batchSize is how much is read from PostgreSQL at a time, and readTimeout bounds one access to it.
	batchSize   = 200
	readTimeout = 10 * time.Second
)

// errTemporalDown is the error of a round that Temporal was not available for.
var errTemporalDown = errors.New("Temporal is not available")

// readBatch reads a batch from PostgreSQL and logs an error. It reads nothing after the end of ctx: what the
// store hands out it does not hand out again for a while.
func readBatch[T any](ctx context.Context, log *slog.Logger, read func(context.Context, int) ([]T, error)) ([]T, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	lasting, cancel := engine.Outlive(ctx, readTimeout)
	defer cancel()
	batch, err := read(lasting, batchSize)
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "a batch cannot be read from PostgreSQL", "error", err)
	}
	return batch, err
}

// everyTick calls do after each period, until ctx ends.
func everyTick(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ctx.Err() != nil { // select would choose any case that is ready
			return
		}
		do()
	}
}
