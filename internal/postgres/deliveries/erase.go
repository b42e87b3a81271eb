package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// inMemoryFor is for how long after an event was accepted its payload may be in the memory of a process
// that has no claim: the life of a fresh token, the second until a slow request has its claim, and time for
// the commit and for clocks that differ.
const inMemoryFor = 10 * time.Second

// LockForErasure locks the deliveries of an event whose payload is to be erased, and returns their ids. It cancels
// the open ones, which it returns with the command.
//
// CodeConflict: a delivery is open and may not be cancelled, or a process may be sending it.
func (s *Deliveries) LockForErasure(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EventID, mayCancel bool) (
	ids []webhook.DeliveryID, cancelled []webhook.CommandedDelivery, err error,
) {
	found, err := lockOfEvent(ctx, tx, tenantID, id)
	if err != nil {
		return nil, nil, err
	}
	var open []webhook.Delivery
	for _, d := range found {
		ids = append(ids, d.DeliveryID)
		if !d.State.Open() {
			continue
		}
		if err := mayErase(s.core.Now(), d, mayCancel); err != nil {
			return nil, nil, err
		}
		open = append(open, d)
	}
	cancelled, err = cancelAll(ctx, tx, open, webhook.ReasonPayloadErased, true)
	return ids, cancelled, err
}

// lockOfEvent locks all deliveries of an event, also those that only have an outbox row, by the index of the tenant within the event's millisecond.
func lockOfEvent(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EventID) ([]webhook.Delivery, error) {
	low, high := postgres.IDsFrom(id.Time()), postgres.IDsFrom(id.Time().Add(time.Millisecond))
	rows, err := tx.Query(ctx, `select delivery_id from outbox where delivery_id >= $1 and delivery_id < $2 and event_id = $3 and tenant_id = $4 order by 1`,
		[16]byte(low), [16]byte(high), id, tenantID)
	if err != nil {
		return nil, err
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil {
		return nil, err
	}
	for _, delivery := range waiting { // so that each has a row
		if _, err := lockDelivery(ctx, tx, tenantID, delivery); err != nil && webhook.CodeOf(err) != webhook.CodeNotFound {
			return nil, err
		}
	}
	rows, err = tx.Query(ctx, `select `+Columns+` from deliveries d where id >= $1 and id < $2 and event_id = $3 and tenant_id = $4 order by id for update`,
		[16]byte(low), [16]byte(high), id, tenantID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, Scan)
}

// mayErase refuses to erase the payload of an open delivery that may not be cancelled, or that a process may
// be sending.
func mayErase(now time.Time, d webhook.Delivery, mayCancel bool) error {
	refuse := func(why string) error {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "delivery " + d.DeliveryID.String() + " " + why}
	}
	free := d.ClaimedUntil
	// Only the first attempt of the first run needs no claim, and only at once.
	if first := d.EventID.Time().Add(inMemoryFor); d.Run == 1 && d.Seq == 0 && !d.DueAt.After(now) && first.After(free) {
		free = first
	}
	switch {
	case !mayCancel:
		return refuse("is " + d.State.String() + "; cancel it first, or pass cancel=true")
	case free.After(now):
		return refuse("may be being sent; try again after " + free.UTC().Format(time.RFC3339))
	}
	return nil
}

// RawIDs are ids as the driver takes them.
func RawIDs[ID ~[16]byte](ids []ID) [][16]byte {
	raw := make([][16]byte, len(ids))
	for i, id := range ids {
		raw[i] = id
	}
	return raw
}
