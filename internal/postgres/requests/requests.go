// Package requests stores requests with an Idempotency-Key and their answers, so that each is carried out once. The row is written by the
// transaction of the request's change, with its audit entry, and gets the answer after it.
package requests

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Requests reads and prunes request_keys, and stores answers.
type Requests struct {
	core   *postgres.Core
	sealer postgres.Sealer
}

// New makes a Requests.
func New(s *postgres.Core, sealer postgres.Sealer) *Requests { return &Requests{s, sealer} }

// upsert inserts a row, and replaces one that is older than an Idempotency-Key is kept, or that the same request has written. It changes
// nothing if another request has the key.
const upsert = `
	insert into request_keys (id, tenant_id, body_sha256, attempt, subject, status, answer, kek_id, wrapped_key, nonce)
	values ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10)
	on conflict (id) do update set body_sha256 = excluded.body_sha256, attempt = excluded.attempt, created_at = excluded.created_at,
		subject = case when request_keys.attempt = excluded.attempt and request_keys.subject <> '' then request_keys.subject else excluded.subject end,
		status = excluded.status, answer = excluded.answer,
		kek_id = excluded.kek_id, wrapped_key = excluded.wrapped_key, nonce = excluded.nonce
	where request_keys.attempt = excluded.attempt or request_keys.created_at < now() - $11::bigint * interval '1 millisecond'`

// put writes the row of a request, with an answer or without one.
func put(ctx context.Context, db postgres.Querier, k *webhook.RequestKey, subject string, status *int16, answer []byte, sealed *postgres.Sealed) (bool, error) {
	var (
		kek            *string
		wrapped, nonce []byte
	)
	if sealed != nil {
		kek, wrapped, nonce, answer = &sealed.KEKID, sealed.WrappedKey, sealed.Nonce, sealed.Ciphertext
	}
	tag, err := db.Exec(ctx, upsert, k.ID[:], k.TenantID, k.Body[:], k.Attempt, subject, status, answer, kek, wrapped, nonce,
		webhook.IdempotencyKeysKept.Milliseconds())
	return tag.RowsAffected() > 0, err
}

// Write writes the row of a request in the transaction of its change; nothing if it has no key. subject is the id of what is changed.
// It waits for a transaction of another request with the same key. CodeConflict: that was committed, so this one must not be.
func Write(ctx context.Context, tx pgx.Tx, k *webhook.RequestKey, subject string) error {
	if k == nil {
		return nil
	}
	written, err := put(ctx, tx, k, subject, nil, nil, nil)
	if err != nil {
		return fmt.Errorf("write the request's key: %w", err)
	}
	if !written {
		return &webhook.Error{Code: webhook.CodeConflict, Message: "a request with this Idempotency-Key was carried out at the same time"}
	}
	return nil
}

// KeepAnswer stores the answer to a request, also if that has changed nothing. An answer with a secret is encrypted. It returns false
// if another request has the key.
func (s *Requests) KeepAnswer(ctx context.Context, k *webhook.RequestKey, a webhook.KeptAnswer) (kept bool, err error) {
	const op = "keep the answer to a request"
	var sealed *postgres.Sealed
	if a.Secret {
		encrypted, err := s.sealer.Seal(ctx, string(a.Text), place(k))
		if err != nil {
			return false, postgres.Translate(op, err)
		}
		sealed = &encrypted
	}
	status := int16(a.Status) //nolint:gosec // three digits
	err = s.core.OfTenantOrOperator(k.TenantID).WithConn(ctx, op, func(ctx context.Context, db postgres.Querier) (err error) {
		kept, err = put(ctx, db, k, "", &status, a.Text, sealed)
		return err
	})
	return kept, err
}

// place is what an encrypted answer is bound to.
func place(k *webhook.RequestKey) string { return "request/" + hex.EncodeToString(k.ID[:]) }

// Request returns the earlier request with the key; nil if there is none. The answer is absent also if it holds a secret and is older
// than such an answer is kept, or cannot be decrypted.
func (s *Requests) Request(ctx context.Context, k *webhook.RequestKey) (*webhook.KeptRequest, error) {
	const op = "look up an Idempotency-Key"
	found, err := postgres.QueryAll(ctx, s.core.OfTenantOrOperator(k.TenantID), op, pgx.RowToStructByPos[row], `
		select body_sha256, subject, (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint,
			coalesce(status, 0), answer, coalesce(kek_id, ''), wrapped_key, nonce
		from request_keys where id = $1 and created_at >= now() - $2::bigint * interval '1 millisecond'`,
		k.ID[:], webhook.IdempotencyKeysKept.Milliseconds())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	r := found[0]
	kept := &webhook.KeptRequest{Subject: r.Subject, Age: time.Duration(r.AgeMS) * time.Millisecond}
	copy(kept.Body[:], r.Body)
	switch {
	case r.KEK == "":
		kept.Answer = webhook.KeptAnswer{Status: int(r.Status), Text: r.Answer}
	case kept.Age < webhook.SecretAnswersKept:
		text, err := s.sealer.Open(ctx, postgres.Sealed{KEKID: r.KEK, WrappedKey: r.Wrapped, Nonce: r.Nonce, Ciphertext: r.Answer}, place(k))
		if webhook.CodeOf(err) == webhook.CodeUnavailable {
			return nil, postgres.Translate(op, err)
		}
		if err == nil {
			kept.Answer = webhook.KeptAnswer{Status: int(r.Status), Text: []byte(text), Secret: true}
		}
	}
	return kept, nil
}

// row is a row of request_keys.
type row struct {
	Body    []byte
	Subject string
	AgeMS   int64
	Status  int16
	Answer  []byte
	KEK     string
	Wrapped []byte
	Nonce   []byte
}

// PruneRequests removes answers with secrets and then requests that are older than they are kept, in batches and the oldest first. It returns
// the number of removed requests.
func (s *Requests) PruneRequests(ctx context.Context) (removed int, err error) {
	for _, p := range []struct {
		sql  string
		keep time.Duration
		rows *int
	}{
		{`update request_keys set status = null, answer = null, kek_id = null, wrapped_key = null, nonce = null where id in (
			select id from request_keys where kek_id is not null and created_at < now() - $1::bigint * interval '1 millisecond'
			order by created_at limit $2)`, webhook.SecretAnswersKept, new(int)},
		{`delete from request_keys where id in (
			select id from request_keys where created_at < now() - $1::bigint * interval '1 millisecond' order by created_at limit $2)`,
			webhook.IdempotencyKeysKept, &removed},
	} {
		err := postgres.InBatches(ctx, func() (bool, error) {
			tag, err := s.core.WorkPool.Exec(ctx, p.sql, p.keep.Milliseconds(), postgres.DeleteBatch)
			*p.rows += int(tag.RowsAffected())
			return tag.RowsAffected() >= postgres.DeleteBatch, err
		})
		if err != nil {
			return removed, postgres.Translate("prune requests", err)
		}
	}
	return removed, nil
}
