package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	require.NoError(t, postgres.Translate("do", nil))

	state := func(code string) error {
		return fmt.Errorf("deeper: %w", &pgconn.PgError{Code: code, Message: "words of the server"})
	}
	for name, c := range map[string]struct {
		err  error
		want webhook.Code
	}{
		"connection failure":   {state("08006"), webhook.CodeUnavailable},
		"too many connections": {state("53300"), webhook.CodeUnavailable},
		"disk full":            {state("53100"), webhook.CodeUnavailable},
		"shutdown":             {state("57P01"), webhook.CodeUnavailable},
		"crash":                {state("57P02"), webhook.CodeUnavailable},
		"starting up":          {state("57P03"), webhook.CodeUnavailable},
		"statement timeout":    {state("57014"), webhook.CodeUnavailable},
		"lock timeout":         {state("55P03"), webhook.CodeUnavailable},
		"standby":              {state("25006"), webhook.CodeUnavailable},
		"deadlock":             {state("40P01"), webhook.CodeUnavailable},
		"serialisation":        {state("40001"), webhook.CodeUnavailable},
		"io":                   {state("58030"), webhook.CodeUnavailable},
		"file too large":       {state("XX000"), webhook.CodeUnavailable},
		"corrupt data":         {state("XX001"), webhook.CodeInternal},
		"corrupt index":        {state("XX002"), webhook.CodeInternal},
		"unique":               {state("23505"), webhook.CodeConflict},
		"foreign key":          {state("23503"), webhook.CodeConflict},
		"check":                {state("23514"), webhook.CodeInternal},
		"bad encoding":         {state("22021"), webhook.CodeInvalid},
		"syntax":               {state("42601"), webhook.CodeInternal},
		"no state":             {state(""), webhook.CodeInternal},
		"cut off":              {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), webhook.CodeUnavailable},
		"pool closed":          {puddle.ErrClosedPool, webhook.CodeUnavailable},
		"conn closed":          {pgconn.ErrConnClosed, webhook.CodeUnavailable},
		"deadline":             {context.DeadlineExceeded, webhook.CodeUnavailable},
		"caller left":          {context.Canceled, webhook.CodeInternal},
		"no rows":              {pgx.ErrNoRows, webhook.CodeInternal},
		"domain":               {webhook.NotFound("thing"), webhook.CodeNotFound},
	} {
		got := postgres.Translate("do a thing", c.err)
		require.Equal(t, c.want.String(), webhook.CodeOf(got).String(), name)
		require.ErrorIs(t, got, c.err, name)
		require.ErrorContains(t, got, "do a thing", name)
		e, ok := errors.AsType[*webhook.Error](got)
		require.Equal(t, !errors.Is(c.err, context.Canceled), ok, "%s: the caller is gone", name)
		if ok && c.want == webhook.CodeUnavailable {
			require.Positive(t, e.RetryAfter, name)
			require.NotContains(t, e.Message, "words of the server", name)
		}
	}
}

// What the real driver returns, for the errors that are easily brought about.
func TestTranslateOfRealErrors(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	for sql, want := range map[string]webhook.Code{
		`select pg_sleep(10)`:                                         webhook.CodeUnavailable, // statement_timeout below
		`insert into tenants (id, name) values ('acme', '')`:          webhook.CodeConflict,
		`do $$ begin raise exception using errcode = '40P01'; end $$`: webhook.CodeUnavailable,
		`select 1/0`: webhook.CodeInternal,
	} {
		quick := storetest.OpenStore(t, address+"&statement_timeout=50ms")
		_, err := quick.Pool().Exec(t.Context(), sql)
		storetest.RequireCode(t, want, postgres.Translate("do", err))
	}
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "nul", Name: "a\x00b"})
	storetest.RequireCode(t, webhook.CodeInvalid, err)

	_, err = storetest.OpenStore(t, "postgres://nobody@127.0.0.1:1/none").Tenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeUnavailable, err)
}
