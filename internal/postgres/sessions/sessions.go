// Package sessions stores the console's one-time links and its sessions, and portal tokens. A token itself is never stored, only its hash.
package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// pruned is how many expired rows each insert removes at most, so that no table grows
	// without a loop of its own.
	pruned = 100
	// seenStep is the precision of last_seen_at in seconds: not every request writes.
	seenStep = 60
)

// Sessions stores links and sessions.
type Sessions struct{ core *postgres.Core }

// New makes a Sessions.
func New(s *postgres.Core) *Sessions { return &Sessions{s} }

// CreateLink stores a link. CodeNotFound: no such tenant.
func (s *Sessions) CreateLink(ctx context.Context, by webhook.Actor, l webhook.ConsoleLink) error {
	return s.core.AsOperator().InTx(ctx, "create console link "+l.ID.String(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			delete from console_links where sha256 in (select sha256 from console_links where expires_at < now() order by expires_at limit $1)`, pruned)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			insert into console_links (sha256, id, tenant_id, key_id, key_sha256, access, return_url, portal, expires_at)
			values ($1, $2, nullif($3, ''), $4, $5, $6, $7, $8, $9)`,
			l.SHA256[:], [16]byte(l.ID), l.TenantID, [16]byte(l.KeyID), l.KeySHA256[:], int16(l.Access), l.ReturnURL, l.Portal, l.ExpiresAt)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "console_links_tenant_id_fkey" {
			return webhook.NotFound("tenant")
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, l.TenantID, audit.ConsoleLinkCreate, l.ID.String(), postgres.JSONBytes(linkDetail(l)))
	})
}

// CreateToken stores a link as the session that it would open: its token is a portal token. CodeNotFound: no such tenant.
func (s *Sessions) CreateToken(ctx context.Context, by webhook.Actor, l webhook.ConsoleLink) error {
	return s.core.AsOperator().InTx(ctx, "create portal token "+l.ID.String(), func(ctx context.Context, tx pgx.Tx) error {
		err := storeSession(ctx, tx, l.Session())
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "console_sessions_tenant_id_fkey" {
			return webhook.NotFound("tenant")
		}
		if err != nil {
			return err
		}
		detail := linkDetail(l)
		detail["kind"] = "token"
		return audit.Write(ctx, tx, by, l.TenantID, audit.ConsoleLinkCreate, l.ID.String(), postgres.JSONBytes(detail))
	})
}

// linkDetail is what the audit log says of a link.
func linkDetail(l webhook.ConsoleLink) map[string]any {
	detail := map[string]any{"access": l.Access.String()}
	if l.Access.Portal() {
		detail["capabilities"] = l.Portal.Capabilities()
	}
	return detail
}

// Link reads a link. CodeNotFound: there is no such link, it was used, or it has expired.
func (s *Sessions) Link(ctx context.Context, sum [32]byte) (webhook.ConsoleLink, error) {
	found := webhook.ConsoleLink{SHA256: sum}
	err := s.core.AsOperator().WithConn(ctx, "read console link", func(ctx context.Context, conn postgres.Querier) error {
		var access int16
		var key []byte
		err := conn.QueryRow(ctx, `
			select id, coalesce(tenant_id, ''), key_id, key_sha256, access, return_url, portal, expires_at
			from console_links where sha256 = $1 and expires_at > now()`, sum[:]).
			Scan((*[16]byte)(&found.ID), &found.TenantID, (*[16]byte)(&found.KeyID), &key, &access, &found.ReturnURL, &found.Portal, &found.ExpiresAt)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("link")
		}
		found.Access = webhook.ConsoleAccess(access) //nolint:gosec // written by us from a ConsoleAccess
		copy(found.KeySHA256[:], key)
		found.ExpiresAt = found.ExpiresAt.UTC()
		return err
	})
	if err != nil {
		return webhook.ConsoleLink{}, err
	}
	return found, nil
}

// UseLink opens the session of a link and removes the link, so that it opens no other. made has the
// session's own hash and its latest end; the rest is the link's. CodeNotFound: there is no such link,
// it was used, or it has expired.
func (s *Sessions) UseLink(ctx context.Context, by webhook.Actor, link [32]byte, made webhook.ConsoleSession) (webhook.ConsoleSession, error) {
	err := s.core.AsOperator().InTx(ctx, "use console link", func(ctx context.Context, tx pgx.Tx) error {
		var access int16
		var sum []byte
		var tenant *string
		err := tx.QueryRow(ctx, `
			delete from console_links where sha256 = $1 and expires_at > now()
			returning id, tenant_id, key_id, key_sha256, access, return_url, portal`, link[:]).
			Scan((*[16]byte)(&made.LinkID), &tenant, (*[16]byte)(&made.KeyID), &sum, &access, &made.ReturnURL, &made.Portal)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("link")
		}
		if err != nil {
			return err
		}
		made.TenantID, made.Access = "", webhook.ConsoleAccess(access) //nolint:gosec // written by us from a ConsoleAccess
		if tenant != nil {
			made.TenantID = *tenant
		}
		copy(made.KeySHA256[:], sum)
		return insertSession(ctx, tx, by, made)
	})
	if err != nil {
		return webhook.ConsoleSession{}, err
	}
	return made, nil
}

// CreateSession stores the session of a log-in.
func (s *Sessions) CreateSession(ctx context.Context, by webhook.Actor, made webhook.ConsoleSession) error {
	return s.core.AsOperator().InTx(ctx, "create console session", func(ctx context.Context, tx pgx.Tx) error {
		return insertSession(ctx, tx, by, made)
	})
}

func insertSession(ctx context.Context, tx pgx.Tx, by webhook.Actor, made webhook.ConsoleSession) error {
	if err := storeSession(ctx, tx, made); err != nil {
		return err
	}
	subject := made.KeyID.String()
	if !made.LinkID.IsZero() {
		subject = made.LinkID.String()
	}
	return audit.Write(ctx, tx, by, made.TenantID, audit.ConsoleLogIn, subject, postgres.JSONBytes(map[string]string{"access": made.Access.String()}))
}

// storeSession inserts a session, and removes some that have ended.
func storeSession(ctx context.Context, tx pgx.Tx, made webhook.ConsoleSession) error {
	_, err := tx.Exec(ctx, `
		delete from console_sessions where sha256 in (
			select sha256 from console_sessions where expires_at < now() order by expires_at limit $1 for update skip locked)`, pruned)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into console_sessions (sha256, link_id, tenant_id, key_id, key_sha256, access, return_url, portal, expires_at)
		values ($1, $2, nullif($3, ''), $4, $5, $6, $7, $8, $9)`,
		made.SHA256[:], pgtype.UUID{Bytes: made.LinkID, Valid: !made.LinkID.IsZero()}, made.TenantID, [16]byte(made.KeyID), made.KeySHA256[:],
		int16(made.Access), made.ReturnURL, made.Portal, made.ExpiresAt)
	if err != nil {
		return fmt.Errorf("store the session: %w", err)
	}
	return nil
}

// Session reads a session, and notes that it was used if used is set. CodeNotFound: there is none, or it has
// ended. The caller checks the session's key.
func (s *Sessions) Session(ctx context.Context, sum [32]byte, used bool) (webhook.ConsoleSession, error) {
	found := webhook.ConsoleSession{SHA256: sum}
	err := s.core.AsOperator().WithConn(ctx, "read console session", func(ctx context.Context, conn postgres.Querier) error {
		var link pgtype.UUID
		var access int16
		var key []byte
		var stale bool
		err := conn.QueryRow(ctx, `
			select link_id, coalesce(tenant_id, ''), key_id, key_sha256, access, return_url, portal, expires_at,
				last_seen_at < now() - $3::bigint * interval '1 second'
			from console_sessions
			where sha256 = $1 and expires_at > now() and last_seen_at > now() - $2::bigint * interval '1 millisecond'`,
			sum[:], webhook.SessionIdle.Milliseconds(), seenStep).
			Scan(&link, &found.TenantID, (*[16]byte)(&found.KeyID), &key, &access, &found.ReturnURL, &found.Portal, &found.ExpiresAt, &stale)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("session")
		}
		if err != nil {
			return err
		}
		found.LinkID, found.Access = link.Bytes, webhook.ConsoleAccess(access) //nolint:gosec // written by us from a ConsoleAccess
		copy(found.KeySHA256[:], key)
		found.ExpiresAt = found.ExpiresAt.UTC()
		if stale && used {
			_, err = conn.Exec(ctx, `update console_sessions set last_seen_at = now() where sha256 = $1`, sum[:])
		}
		return err
	})
	if err != nil {
		return webhook.ConsoleSession{}, err
	}
	return found, nil
}

// EndSession removes a session. It is no error if there is none.
func (s *Sessions) EndSession(ctx context.Context, sum [32]byte) error {
	return s.core.AsOperator().WithConn(ctx, "end console session", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `delete from console_sessions where sha256 = $1`, sum[:])
		return err
	})
}
