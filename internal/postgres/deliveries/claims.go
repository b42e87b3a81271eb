package deliveries

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// claiming is a claim in the group commit, with the results of its flush.
type claiming struct {
	Claim   webhook.Claim
	Granted bool                   // result
	Known   bool                   // result: the delivery is stored
	Status  webhook.DeliveryStatus // result
	Payload storedPayload          // result
	Place   webhook.Sequence       // result
}

// repeats reports whether c repeats the other claim, which would be granted in a flush of its own, too.
func (c *claiming) repeats(other *claiming) bool {
	return c.Claim.Ref == other.Claim.Ref && c.Claim.Claimant == other.Claim.Claimant && c.Claim.Run == other.Claim.Run && c.Claim.Seq == other.Claim.Seq
}

// storedPayload is the stored content of an event; without Bytes and headers once they were removed.
type storedPayload struct {
	Bytes, sum []byte
	headers    []byte // JSON; nil for none
	created    time.Time
	tenant     string
	numbered   bool // deliveries of the event have numbers
}

func (c *claiming) Tenant() string { return c.Claim.TenantID }

// Claim takes the right to send the next attempt and reads what the request needs, in one transaction:
// the payload, its SHA-256, and the status with the pending command. The claim is granted if run and
// step are the stored ones, the state is open, and no other process has a claim.
//
// CodeNotFound: the delivery has neither a row nor an outbox row that names the claim's tenant and type of event, so it is
// none of ours, whatever a workflow says. Its event and its endpoint are those that its id is made of.
//
// If it is not granted, the stored status is ahead of the caller's (the outcome is known already, or
// another run was opened), or it is the same and ClaimedUntil is set. A payload that was removed is
// nil.
func (s *Deliveries) Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error) {
	item := &claiming{Claim: c}
	if err := s.claims.Do(ctx, item); err != nil {
		return webhook.ClaimResult{}, err
	}
	if !item.Known {
		return webhook.ClaimResult{}, webhook.NotFound("delivery")
	}
	headers, err := postgres.EventHeaders(item.Payload.headers)
	if err != nil {
		return webhook.ClaimResult{}, fmt.Errorf("read the headers of %s: %w", c.EventID, err)
	}
	return webhook.ClaimResult{
		Granted: item.Granted, Status: item.Status, Payload: item.Payload.Bytes, SHA256: item.Payload.sum, EventAt: item.Payload.created, Headers: headers,
		Sequence: item.Place,
	}, nil
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var claimAttempt = deletingOutboxRows(`
	insert into deliveries as d (id, event_id, endpoint_id, tenant_id, event_type, created_at,
		run, seq, state, attempts, give_up_at, workflow_id, owner, owner_until)
	select id, event, endpoint, tenant, type, created, run, seq, 0, attempts, give_up, workflow, owner, now() + span * interval '1 microsecond'
	from (`+claimRows.Query(1)+`) r where `+isStored+`
	on conflict (id) do update set owner = excluded.owner, owner_until = excluded.owner_until, workflow_id = `+takeOver+`
	where d.run = excluded.run and d.seq = excluded.seq and d.state `+postgres.IsOpen+`
	  and (d.owner is null or d.owner = excluded.owner or d.owner_until < now())`, claimRows)

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var claimRows = postgres.RowsOf[*webhook.Claim]{
	postgres.Whole("id uuid", func(c *webhook.Claim) [16]byte { return c.DeliveryID }),
	postgres.Each("event uuid", func(c *webhook.Claim) [16]byte { return c.EventID }),
	postgres.Each("endpoint uuid", func(c *webhook.Claim) [16]byte { return c.EndpointID }),
	postgres.Each("tenant text", func(c *webhook.Claim) string { return c.TenantID }),
	postgres.Each("type text", func(c *webhook.Claim) string { return c.EventType }),
	postgres.Each("created timestamptz", func(c *webhook.Claim) time.Time { return c.EventID.Time() }),
	postgres.Each("run int", func(c *webhook.Claim) int { return c.Run }),
	postgres.Each("seq int", func(c *webhook.Claim) int { return c.Seq }),
	postgres.Each("attempts int", func(c *webhook.Claim) int { return c.Attempts }),
	postgres.Each("give_up timestamptz", func(c *webhook.Claim) time.Time { return c.GiveUpAt }),
	postgres.Each("workflow text", func(c *webhook.Claim) string { return c.WorkflowID }),
	postgres.Each("owner uuid", func(c *webhook.Claim) [16]byte { return claimantID(c.Claimant) }),
	postgres.Each("span bigint", func(c *webhook.Claim) int64 { return c.For.Microseconds() }),
}

// flushClaims decides the claims on many deliveries in one transaction.
func (s *Deliveries) flushClaims(ctx context.Context, items []*claiming) error {
	// In the order of the keys, as in flushRecords.
	slices.SortStableFunc(items, func(a, b *claiming) int { return bytes.Compare(a.Claim.DeliveryID[:], b.Claim.DeliveryID[:]) })
	claims := make([]*webhook.Claim, 0, len(items))
	first := make(map[storedRef]*claiming, len(items)) // the only claim on a delivery that is written; others may repeat it
	for _, it := range items {
		it.Granted, it.Known, it.Payload, it.Place = false, false, storedPayload{}, webhook.Sequence{}
		ref := storedRefOf(&it.Claim.Ref)
		if first[ref] != nil {
			continue
		}
		first[ref] = it
		claims = append(claims, &it.Claim)
	}
	ids := postgres.ValuesOf(claims, func(c *webhook.Claim) [16]byte { return c.DeliveryID })
	events := postgres.ValuesOf(claims, func(c *webhook.Claim) [16]byte { return c.EventID })

	batch := &pgx.Batch{}
	granted := make(map[storedRef]webhook.DeliveryStatus, len(items))
	kept := make([][16]byte, 0, len(claims))
	for _, c := range claims {
		if c.KeepOutbox {
			kept = append(kept, c.DeliveryID)
		}
	}
	batch.Queue(claimAttempt, append(claimRows.Args(claims), kept)...).
		Query(func(rows pgx.Rows) error { return readStatuses(rows, granted) })
	statuses, claimed := make(map[storedRef]webhook.DeliveryStatus, len(items)), map[webhook.DeliveryID]time.Time{}
	batch.Queue(`select `+statusColumns+` from deliveries d where id = any($1)`, ids).
		Query(func(rows pgx.Rows) error { return readStatuses(rows, statuses) })
	batch.Queue(selectClaimed, ids).
		Query(func(rows pgx.Rows) error { return readClaimed(rows, claimed) })
	payloads := map[webhook.EventID]storedPayload{}
	batch.Queue(`select id, payload, payload_sha256, created_at, payload_removed_at is not null, tenant_id, headers, line_numbers is not null
		from events where id = any($1)`, events).
		Query(func(rows pgx.Rows) error { return readPayloads(rows, payloads) })
	if err := s.core.StepPool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, it := range items {
		ref := storedRefOf(&it.Claim.Ref)
		_, ok := granted[ref]
		it.Granted = ok && it.repeats(first[ref])
		if it.Status, it.Known = statuses[ref]; !it.Known {
			continue
		}
		if !it.Granted {
			it.Status.ClaimedUntil = claimed[it.Claim.DeliveryID]
		}
		if payload := payloads[it.Claim.EventID]; payload.tenant == it.Claim.TenantID {
			it.Payload = payload
		}
	}
	return s.readPlaces(ctx, items)
}

// readPlaces reads the places of the deliveries whose events have numbers. Most flushes have none, and ask nothing. An event is read by its key.
func (s *Deliveries) readPlaces(ctx context.Context, items []*claiming) error {
	var numbered []*claiming
	for _, it := range items {
		if it.Payload.numbered {
			numbered = append(numbered, it)
		}
	}
	if len(numbered) == 0 {
		return nil
	}
	rows, err := s.core.StepPool.Query(ctx, `
		select u.at, coalesce(e.ordering_key, ''), e.line, e.number
		from unnest($1::uuid[], $2::uuid[]) with ordinality u (event, endpoint, at) cross join lateral (
			select ordering_key, line_ids[array_position(endpoint_ids, u.endpoint)] as line, line_numbers[array_position(endpoint_ids, u.endpoint)] as number
			from events where id = u.event limit 1) e
		where e.number > 0`,
		postgres.ValuesOf(numbered, func(c *claiming) [16]byte { return c.Claim.EventID }),
		postgres.ValuesOf(numbered, func(c *claiming) [16]byte { return c.Claim.EndpointID }))
	if err != nil {
		return err
	}
	var (
		at    int
		place webhook.Sequence
	)
	_, err = pgx.ForEachRow(rows, []any{&at, &place.Key, &place.Line, &place.Number}, func() error {
		numbered[at-1].Place = place
		return nil
	})
	return err
}

const selectClaimed = `select id, owner_until from deliveries where id = any($1) and owner is not null and owner_until >= now()`

func readClaimed(rows pgx.Rows, into map[webhook.DeliveryID]time.Time) error {
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

// ClaimStatus is the stored status of a delivery, with ClaimedUntil while another process than the claimant has
// a claim on it. CodeNotFound before its first step or claim, and if the delivery is not the one that ref says.
func (s *Deliveries) ClaimStatus(ctx context.Context, ref webhook.Ref, claimant string) (webhook.DeliveryStatus, error) {
	claimed := map[webhook.DeliveryID]time.Time{}
	err := s.core.AsWorker().WithConn(ctx, "read a claim", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, selectClaimed+` and owner <> $2`, [][16]byte{ref.DeliveryID}, claimantID(claimant))
		if err != nil {
			return err
		}
		return readClaimed(rows, claimed)
	})
	if err != nil {
		return webhook.DeliveryStatus{}, err
	}
	// After the claim: if that has ended meanwhile, the status is the one after it.
	status, err := s.DeliveryStatus(ctx, ref)
	if err == nil {
		status.ClaimedUntil = claimed[ref.DeliveryID]
	}
	return status, err
}

func readPayloads(rows pgx.Rows, into map[webhook.EventID]storedPayload) error {
	var (
		id           [16]byte
		payload, sum []byte
		headers      []byte
		created      time.Time
		removed      bool
		tenant       string
		numbered     bool
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &payload, &sum, &created, &removed, &tenant, &headers, &numbered}, func() error {
		into[id] = storedPayload{bytes.Clone(payload), bytes.Clone(sum), bytes.Clone(headers), created.UTC(), tenant, numbered}
		if removed {
			into[id] = storedPayload{created: created.UTC(), tenant: tenant}
		}
		return nil
	})
	return err
}

// claimantID returns the stored form of a process's name.
func claimantID(name string) [16]byte { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }
