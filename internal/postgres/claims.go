package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// claiming is one claim on its way into the record, with what its flush found out.
type claiming struct {
	claim    webhook.Claim
	granted  bool             // result
	standing webhook.Standing // result
	payload  storedPayload    // result
}

// storedPayload is what the record has of an event's content; zero once retention has
// removed it.
type storedPayload struct {
	bytes, sum []byte
	created    time.Time
}

func (c *claiming) tenant() string { return c.claim.TenantID }

// Begin takes the right to send the next attempt and reads all that sending it
// needs, in one transaction: the payload, its SHA-256, and the standing with the
// pending command. The right is granted when the record stands where the claimant
// stands, in an open state, and nobody else has it.
//
// Not granted: either the standing is after the claimant's (the outcome is known
// already, or another run has begun), or it is the same and OwnedUntil is set.
// A payload that retention has removed is nil.
func (s *Store) Begin(ctx context.Context, c webhook.Claim) (webhook.Begun, error) {
	item := &claiming{claim: c}
	if err := s.claims.do(ctx, item); err != nil {
		return webhook.Begun{}, err
	}
	return webhook.Begun{
		Granted: item.granted, Standing: item.standing, Payload: item.payload.bytes, SHA256: item.payload.sum, EventAt: item.payload.created,
	}, nil
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var claimAttempt = endingOutbox(`
	insert into deliveries as d (id, event_id, endpoint_id, tenant_id, event_type, created_at,
		run, seq, state, attempts, give_up_at, workflow_id, owner, owner_until)
	select id, event, endpoint, tenant, type, created, run, seq, 0, attempts, give_up, workflow, owner, now() + span * interval '1 microsecond'
	from (`+selectRows(1,
	"id uuid", "event uuid", "endpoint uuid", "tenant text", "type text", "created timestamptz", "run int", "seq int", "attempts int", "give_up timestamptz",
	"workflow text", "owner uuid", "span bigint")+`) r
	on conflict (id) do update set owner = excluded.owner, owner_until = excluded.owner_until, workflow_id = `+takeOver+`
	where d.run = excluded.run and d.seq = excluded.seq and d.state < 3
	  and (d.owner is null or d.owner = excluded.owner or d.owner_until < now())`, 14)

type claimColumns struct {
	ids, events, endpoints, owners [][16]byte
	tenants, types, workflows      []string
	created, giveUp                []time.Time
	runs, seqs, attempts           []int
	spans                          []int64 // in microseconds
	keptOutbox                     [][16]byte
}

func (cols *claimColumns) add(c *webhook.Claim) {
	cols.ids = append(cols.ids, c.DeliveryID)
	cols.events = append(cols.events, c.EventID)
	cols.endpoints = append(cols.endpoints, c.EndpointID)
	cols.tenants = append(cols.tenants, c.TenantID)
	cols.types = append(cols.types, c.EventType)
	cols.created = append(cols.created, c.EventID.Time())
	cols.runs = append(cols.runs, c.Run)
	cols.seqs = append(cols.seqs, c.Seq)
	cols.attempts = append(cols.attempts, c.Attempts)
	cols.giveUp = append(cols.giveUp, c.GiveUpAt)
	cols.workflows = append(cols.workflows, c.WorkflowID)
	cols.owners = append(cols.owners, ownerOf(c.Owner))
	cols.spans = append(cols.spans, c.For.Microseconds())
	if c.KeepOutbox {
		cols.keptOutbox = append(cols.keptOutbox, c.DeliveryID)
	}
}

func (cols *claimColumns) args() []any {
	return []any{
		cols.ids, once(cols.events), once(cols.endpoints), once(cols.tenants), once(cols.types), once(cols.created),
		once(cols.runs), once(cols.seqs), once(cols.attempts), once(cols.giveUp), once(cols.workflows), once(cols.owners), once(cols.spans), cols.keptOutbox,
	}
}

// flushClaims decides the claims on many deliveries in one transaction.
func (s *Store) flushClaims(ctx context.Context, items []*claiming) error {
	// In the order of the keys, as in flushRecords.
	slices.SortStableFunc(items, func(a, b *claiming) int { return bytes.Compare(a.claim.DeliveryID[:], b.claim.DeliveryID[:]) })
	var claims claimColumns
	first := make(map[webhook.DeliveryID]*claiming, len(items)) // a second claim of the same delivery in one flush is not granted
	for _, it := range items {
		it.granted, it.payload = false, storedPayload{}
		if first[it.claim.DeliveryID] != nil {
			continue
		}
		first[it.claim.DeliveryID] = it
		claims.add(&it.claim)
	}

	batch := &pgx.Batch{}
	granted := make(map[webhook.DeliveryID]webhook.Standing, len(items))
	batch.Queue(claimAttempt, claims.args()...).
		Query(func(rows pgx.Rows) error { return readStandings(rows, granted) })
	standings, owned := make(map[webhook.DeliveryID]webhook.Standing, len(items)), map[webhook.DeliveryID]time.Time{}
	batch.Queue(`select `+standingColumns+` from deliveries d where id = any($1)`, claims.ids).
		Query(func(rows pgx.Rows) error { return readStandings(rows, standings) })
	batch.Queue(selectOwned, claims.ids).
		Query(func(rows pgx.Rows) error { return readOwned(rows, owned) })
	payloads := map[webhook.EventID]storedPayload{}
	batch.Queue(`select id, payload, payload_sha256, created_at from events where id = any($1)`, claims.events).
		Query(func(rows pgx.Rows) error { return readPayloads(rows, payloads) })
	if err := s.writer.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, it := range items {
		id := it.claim.DeliveryID
		_, ok := granted[id]
		it.granted = ok && first[id] == it
		it.standing = standings[id]
		if !it.granted {
			it.standing.OwnedUntil = owned[id]
		}
		it.payload = payloads[it.claim.EventID]
	}
	return nil
}

const selectOwned = `select id, owner_until from deliveries where id = any($1) and owner is not null and owner_until >= now()`

func readOwned(rows pgx.Rows, into map[webhook.DeliveryID]time.Time) error {
	var (
		id    [16]byte
		until time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &until}, func() error {
		into[id] = until.UTC()
		return nil
	})
	return err
}

func readPayloads(rows pgx.Rows, into map[webhook.EventID]storedPayload) error {
	var (
		id           [16]byte
		payload, sum []byte
		created      time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &payload, &sum, &created}, func() error {
		into[id] = storedPayload{bytes.Clone(payload), bytes.Clone(sum), created.UTC()}
		return nil
	})
	return err
}

// ownerOf is a process's name as the record keeps it.
func ownerOf(name string) [16]byte { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }
