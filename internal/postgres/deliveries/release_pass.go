package deliveries

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// highestID is above every delivery.
//
//nolint:gochecknoglobals // a constant that Go cannot write as one
var highestID = webhook.DeliveryID(bytes.Repeat([]byte{0xff}, 16))

// pass goes through what is held of a span, from the lowest to the highest.
type pass struct {
	from webhook.DeliveryID // nothing below it is held; zero: that is not known
	at   place              // up to which it has come
}

// begin is the id after which the pass begins.
func (p *pass) begin(of span) webhook.DeliveryID {
	if p.from == (webhook.DeliveryID{}) {
		return of.low
	}
	return higher(of.low, before(p.from))
}

func higher(a, b webhook.DeliveryID) webhook.DeliveryID {
	if bytes.Compare(a[:], b[:]) > 0 {
		return a
	}
	return b
}

// place is an id up to which a release has come, of which a row has null if it is zero.
type place = pgtype.UUID

func placeAt(id webhook.DeliveryID) place { return place{Bytes: id, Valid: true} }

// span are the deliveries with ids above low, and up to high.
type span struct{ low, high webhook.DeliveryID }

// takenSpan is what was released of a span.
type takenSpan struct {
	n     int
	ended bool      // all that can be released up to its end was
	again time.Time // when there may be more; zero: nothing is held
}

// takeFrom releases up to n of a span, as its pass goes on. After the end of a pass, the next turn begins another one.
//
// A pass begins at the lowest that is held. What lies below has begun or ended, but as long as vacuum is held back, the index still has it.
func (t *releaseTurn) takeFrom(ctx context.Context, of span, p *pass, n int) (done takenSpan, err error) {
	done.again = t.now
	if n <= 0 {
		return done, nil
	}
	from := p.begin(of)
	begins := !p.at.Valid || bytes.Compare(p.at.Bytes[:], from[:]) <= 0 || bytes.Compare(p.at.Bytes[:], of.high[:]) > 0
	if !begins {
		from = p.at.Bytes
	} else if from, err = t.beginPass(ctx, span{from, of.high}, p); err != nil || from == of.high {
		done.ended, done.again = true, time.Time{}
		return done, err
	}
	// All columns at once: a second look at the rows, by their ids, would read the primary keys of all partitions.
	rows, err := t.tx.Query(ctx, `
		select `+Columns+` from deliveries d where d.endpoint_id = $1 and d.id > $2 and d.id <= $3 and `+IsHeld+`
		order by d.id limit $4 for update of d skip locked`, t.EndpointID, from, of.high, n)
	if err != nil {
		return done, err
	}
	found, err := pgx.CollectRows(rows, Scan)
	if err != nil {
		return done, err
	}
	starts, err := release(ctx, t.tx, t.now, found, insertReleasedRows)
	if err != nil {
		return done, err
	}
	t.starts, done.n = append(t.starts, starts...), len(starts)
	if len(found) == n {
		p.at = placeAt(found[n-1].DeliveryID)
		return done, nil
	}
	p.at, done.ended = place{}, true
	if begins { // what is held has not begun, or cannot be released now
		done.again = t.now.Add(min(max(t.Look, firstLook), lastLook))
	}
	return done, nil
}

// beginPass begins a pass of what is held of a span, and returns the id after which it begins: the end of the span if nothing is held. The next
// passes begin there, too, once no hold can be on its way that does not note itself.
func (t *releaseTurn) beginPass(ctx context.Context, of span, p *pass) (from webhook.DeliveryID, err error) {
	p.at = place{}
	lowest, held, err := lowestHeld(ctx, t.tx, t.EndpointID, of)
	if err != nil {
		return from, err
	}
	if !held {
		lowest = of.high
	}
	if t.settled().Before(t.now) {
		p.from = lowest
	}
	if !held {
		return of.high, nil
	}
	return before(lowest), nil
}

// lowestHeld returns the lowest of an endpoint's deliveries in a span that are held, or have been released and have not begun.
func lowestHeld(ctx context.Context, tx pgx.Tx, endpoint webhook.EndpointID, of span) (id webhook.DeliveryID, held bool, err error) {
	var lowest [16]byte
	err = tx.QueryRow(ctx, `select id from deliveries where endpoint_id = $1 and id > $2 and id <= $3 and state = `+postgres.Held+` order by id limit 1`,
		endpoint, of.low, of.high).Scan(&lowest)
	if postgres.IsNoRows(err) {
		return id, false, nil
	}
	return lowest, err == nil, err
}

// before is the id before another.
func before(id webhook.DeliveryID) webhook.DeliveryID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}
