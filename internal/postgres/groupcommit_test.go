package postgres_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/groupcommit"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// A caller learns what a group commit refuses, and that it may try again.
func TestRefusalsOfAGroupCommit(t *testing.T) {
	t.Parallel()
	for err, words := range map[error]string{groupcommit.ErrFull: "try again shortly", groupcommit.ErrStopped: "stopping"} {
		refused := postgres.TranslateWriter("test", err)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(refused))
		require.ErrorContains(t, refused, words)
	}
}

// R9: what helps after an error of a flush. A conflict is repeated, a lock is waited for by an item alone, and
// bad values and locks are kept from the other items.
func TestRemedyOf(t *testing.T) {
	t.Parallel()
	repeat, split := groupcommit.Remedy{Repeat: true}, groupcommit.Remedy{Split: true}
	for name, c := range map[string]struct {
		code, constraint string
		want             groupcommit.Remedy
	}{
		"deadlock":                       {code: "40P01", want: repeat},
		"serialisation":                  {code: "40001", want: repeat},
		"row of a day that gets a table": {code: "23514", want: groupcommit.Remedy{Repeat: true, Split: true}},
		"check":                          {code: "23514", constraint: "events_check", want: split},
		"unique":                         {code: "23505", constraint: "events_pkey", want: split},
		"bad encoding":                   {code: "22021", want: split},
		"lock timeout":                   {code: "55P03", want: groupcommit.Remedy{Locked: true, Split: true}},
		"statement timeout":              {code: "57014", want: split},
		"shutdown":                       {code: "57P01"},
		"no state":                       {},
	} {
		err := fmt.Errorf("flush: %w", &pgconn.PgError{Code: c.code, ConstraintName: c.constraint})
		require.Equal(t, c.want, postgres.RemedyOf(err), name)
	}
	require.Zero(t, postgres.RemedyOf(io.ErrUnexpectedEOF), "the connection is lost")
}
