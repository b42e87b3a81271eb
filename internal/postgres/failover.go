package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// roundEvery is the least time between two rounds of a pool. A database that is read-only by a setting answers each
// write as a standby does: without it every write would open a connection.
const roundEvery = time.Second

// ReadOnly is the SQLSTATE of a write to a standby, or to a database that is read-only by default_transaction_read_only.
const ReadOnly = "25006"

// demoted reports whether a SQLSTATE says that the session's server does not serve writes, or no longer: others that lead
// to the same server will say so, too.
func demoted(state string) bool {
	switch state {
	case ReadOnly, "57P01", "57P02", "57P03": // shutdown, crash, starting up
		return true
	}
	return false
}

// rounds closes the sessions of a pool when one of them leads to a server that is not the primary any more. Such a
// session stays useless although new connections lead to the new primary, and is otherwise kept as long as it lives.
type rounds struct {
	number atomic.Int64 // of the newest; a session of an earlier one is closed instead of being used

	mu   sync.Mutex
	last time.Time // when the newest began
}

// begin begins a round, unless another one has begun within roundEvery.
func (r *rounds) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && time.Since(r.last) < roundEvery {
		return false
	}
	r.last = time.Now()
	r.number.Add(1)
	return true
}

// roundOf is the key of a session's round in its custom data.
const roundOf = "everpost round"

// inRounds makes the pools of a configuration close their sessions in rounds.
func inRounds(config *pgxpool.Config, r *rounds) *pgxpool.Config {
	keepOpen, connected := config.ConnConfig.OnPgError, config.AfterConnect
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if demoted(err.Code) && r.begin() {
			return false
		}
		return keepOpen == nil || keepOpen(conn, err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[roundOf] = r.number.Load()
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		return conn.PgConn().CustomData()[roundOf] == r.number.Load(), nil
	}
	return config
}
