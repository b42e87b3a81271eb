package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	historyTick  = 100 * time.Millisecond // between two looks
	historyReads = 2 * time.Second        // bounds one
)

// standing is how far a delivery is, as the database says at a moment.
type standing struct {
	state         webhook.State
	run, attempts int
}

// goesBack reports whether a delivery cannot be here after it was at the earlier standing: a run, an attempt or an end was forgotten.
func (now standing) goesBack(earlier standing) bool {
	switch {
	case now.run != earlier.run || now.attempts < earlier.attempts:
		return now.run < earlier.run || now.attempts < earlier.attempts
	case earlier.state == webhook.StateDeadLettered:
		return now.state.Open()
	case !earlier.state.Open():
		return now.state != earlier.state
	}
	return false
}

// history follows the deliveries of a tenant in the database during a run.
type history struct {
	last    map[[16]byte]standing
	strange []string // what no delivery may do
}

func newHistory() *history { return &history{last: map[[16]byte]standing{}} }

// follow looks at the deliveries until ctx is done. A look that fails is left out: the database may be what fails.
func (h *history) follow(ctx context.Context, in *installation, tenant string) {
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil {
			var err error
			if conn, err = in.dial(ctx); err != nil {
				return
			}
		}
		if err := h.look(ctx, conn, tenant); err != nil {
			_ = conn.Close(context.Background())
			conn = nil
		}
		_ = pause(ctx, historyTick)
	}
	if conn != nil {
		_ = conn.Close(context.Background())
	}
}

func (h *history) look(ctx context.Context, conn *pgx.Conn, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, historyReads)
	defer cancel()
	var (
		id    [16]byte
		state int16
		now   standing
	)
	rows, _ := conn.Query(ctx, "select id, state, run, attempts from deliveries where tenant_id = $1", tenant)
	_, err := pgx.ForEachRow(rows, []any{&id, &state, &now.run, &now.attempts}, func() error {
		now.state = webhook.State(state)
		h.see(id, now)
		return nil
	})
	return err
}

// see adds what was seen of a delivery.
func (h *history) see(id [16]byte, now standing) {
	if earlier, known := h.last[id]; known && now.goesBack(earlier) {
		h.strange = append(h.strange, fmt.Sprintf("delivery %s was %s in run %d with %d attempts, and later %s in run %d with %d attempts",
			webhook.DeliveryID(id), earlier.state, earlier.run, earlier.attempts, now.state, now.run, now.attempts))
	}
	h.last[id] = now
}
