package replays

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// openRuns opens a run of each delivery, all of which have ended. It skips those of a deleted endpoint.
func (r *lockedReplay) openRuns(ctx context.Context, tx pgx.Tx, all []webhook.Delivery, now time.Time) (released, error) {
	var out released
	policies, err := r.policiesOf(ctx, tx, all)
	if err != nil || len(all) == 0 {
		return out, err
	}
	var starts []*webhook.Start
	now = now.UTC().Truncate(time.Microsecond)
	for _, d := range all {
		policy, known := policies[d.EndpointID]
		if !known {
			out.skipped++
			continue
		}
		start := &webhook.Start{Ref: d.Ref, Run: d.Run + 1, CreatedAt: now, GiveUpAt: now.Add(policy.GiveUpAfter)}
		if d.State == webhook.StateDeadLettered {
			start.Earlier = d.WorkflowID
		}
		starts = append(starts, start)
		d.Run++
		out.add(d)
	}
	webhook.Assign(starts)
	var (
		ids       = make([][16]byte, len(starts))
		workflows = make([]string, len(starts))
		giveUp    = make([]time.Time, len(starts))
		ob        = make(deliveries.OutboxBatch, len(starts))
	)
	for i, start := range starts {
		ids[i], workflows[i], giveUp[i], ob[i] = start.DeliveryID, start.AssignedTo, start.GiveUpAt, deliveries.OutboxRow{Start: start, After: 0}
	}
	batch := &pgx.Batch{}
	batch.Queue(`
		update deliveries d set run = d.run + 1, seq = 0, state = `+postgres.Pending+`, reason = '',
			run_attempts = 0, ambiguous = 0, delay_ns = 0, due_at = null,
			give_up_at = u.give_up, held_at = null, held_for_ns = null, held_until = null, completed_at = null,
			last_error = '', owner = null, owner_until = null, command = 0, workflow_id = u.workflow
		from unnest($1::uuid[], $2::timestamptz[], $3::text[]) u (id, give_up, workflow) where d.id = any($1) and d.id = u.id`,
		ids, giveUp, workflows)
	ob.Queue(batch)
	return out, tx.SendBatch(ctx, batch).Close()
}

// policiesOf returns the retry policies in force of the deliveries' endpoints. A deleted endpoint has
// none.
func (r *lockedReplay) policiesOf(ctx context.Context, tx pgx.Tx, all []webhook.Delivery) (map[webhook.EndpointID]retry.Policy, error) {
	policies := map[webhook.EndpointID]retry.Policy{}
	var ids [][16]byte
	for _, d := range all {
		if _, seen := policies[d.EndpointID]; !seen {
			policies[d.EndpointID], ids = retry.Policy{}, append(ids, d.EndpointID)
		}
	}
	clear(policies)
	rows, err := tx.Query(ctx, `
		select id, coalesce(retry_policy, `+tenants.PolicyOfEndpoint+`) from endpoints e where id = any($1) and deleted_at is null`, ids)
	if err != nil {
		return nil, err
	}
	var (
		id     [16]byte
		policy *retry.Policy
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &policy}, func() error {
		policies[id] = r.retryPolicy
		if policy != nil {
			policies[id] = *policy
		}
		policy = nil
		return nil
	})
	return policies, err
}

// create inserts new deliveries into the outbox. It skips those that are there already.
func (r *lockedReplay) create(ctx context.Context, tx pgx.Tx, wanted map[webhook.DeliveryID]webhook.Start, now time.Time, out *released) error {
	if len(wanted) == 0 {
		return nil
	}
	policies, err := r.policiesOf(ctx, tx, []webhook.Delivery{{Ref: webhook.Ref{EndpointID: r.Filter.EndpointID}}})
	if err != nil {
		return err
	}
	policy, exists := policies[r.Filter.EndpointID]
	if !exists {
		out.skipped += len(wanted)
		return nil
	}
	var ids [][16]byte
	for id := range wanted {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	rows, err := tx.Query(ctx, `select delivery_id from outbox where delivery_id = any($1)`, ids)
	if err != nil {
		return err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil {
		return err
	}
	out.skipped += len(known)
	var (
		starts []*webhook.Start
		ob     deliveries.OutboxBatch
	)
	for _, id := range ids {
		if slices.Contains(known, id) {
			continue
		}
		start := wanted[id]
		from := now.UTC()
		if start.NotBefore.After(from) {
			from = start.NotBefore
		}
		start.GiveUpAt = from.Add(policy.GiveUpAfter).Truncate(time.Microsecond)
		starts, ob = append(starts, &start), append(ob, deliveries.OutboxRow{Start: &start, After: 0})
		out.add(webhook.Delivery{Ref: start.Ref, Progress: webhook.Progress{Run: 1}})
	}
	webhook.Assign(starts)
	batch := &pgx.Batch{}
	ob.Queue(batch)
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}
