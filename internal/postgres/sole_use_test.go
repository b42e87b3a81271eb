package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
)

// soleDatabase makes a database of its own: the lock is on all of it.
func soleDatabase(t *testing.T) (address string, admin *pgx.Conn) {
	t.Helper()
	base := postgrestest.NewEmpty(t)
	conn, err := pgx.Connect(t.Context(), base)
	require.NoError(t, err)
	u, err := url.Parse(base)
	require.NoError(t, err)
	name := u.Query().Get("search_path")
	_, err = conn.Exec(t.Context(), `create database `+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := conn.Exec(ctx, `drop database `+name+` with (force)`)
		require.NoError(t, err)
		require.NoError(t, conn.Close(ctx))
	})
	u.Path = "/" + name
	return u.String(), conn
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func takeSole(t *testing.T, address string, log *slog.Logger) *SoleUse {
	t.Helper()
	s, err := TakeSoleUse(t.Context(), address, log)
	require.NoError(t, err)
	t.Cleanup(s.Release)
	return s
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestOneInstallationOnADatabase(t *testing.T) {
	t.Parallel()
	address, _ := soleDatabase(t)
	first := takeSole(t, address, discard())
	_, err := TakeSoleUse(t.Context(), address, discard())
	var taken *SoleUseError
	require.ErrorAs(t, err, &taken)
	require.Regexp(t, `^another everpost standalone \(\w{8}, process \d+ on .*, connected since 20.*Z\) uses this database: stop that one, or`, err.Error())
	require.ErrorContains(t, err, fmt.Sprintf("process %d on", os.Getpid()))

	first.Release()
	first.Release()
	takeSole(t, address, discard())
	// Roles that run API and workers apart are not kept off: they take no such lock.
	other, _ := soleDatabase(t)
	takeSole(t, other, discard())
}

// A start right after the last process was killed waits until the server has noticed.
func TestLockIsWaitedFor(t *testing.T) {
	t.Parallel()
	address, _ := soleDatabase(t)
	first := takeSole(t, address, discard())
	time.AfterFunc(soleGrace/10, first.Release)
	takeSole(t, address, discard())
}

// endSessions ends the sessions that hold the lock, as a failover or an operator does.
func endSessions(t *testing.T, admin *pgx.Conn, address string) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	var ended int
	require.NoError(t, admin.QueryRow(t.Context(), `select count(pg_terminate_backend(l.pid, 5000)) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and d.datname = $1`, u.Path[1:]).Scan(&ended))
	require.Positive(t, ended)
}

func TestLockIsTakenAgain(t *testing.T) {
	t.Parallel()
	address, admin := soleDatabase(t)
	var log lockedBuffer
	s := takeSole(t, address, slog.New(slog.NewTextHandler(&log, nil)))
	for n := range 3 {
		endSessions(t, admin, address)
		require.Eventually(t, func() bool { return strings.Count(log.String(), "is taken again") == n+1 }, time.Minute, 5*time.Millisecond)
		_, err := TakeSoleUse(t.Context(), address, discard())
		var taken *SoleUseError
		require.ErrorAs(t, err, &taken)
	}
	require.NoError(t, s.Err())
	s.Release()
	require.NoError(t, s.Err())
	require.NotContains(t, log.String(), "postgres://")
}

// The server believes the broken connection to be alive: this process ends its own session.
func TestOwnSessionDoesNotCountAsAnother(t *testing.T) {
	t.Parallel()
	address, _ := soleDatabase(t)
	pool, err := poolConfig(Config{URL: address})
	require.NoError(t, err)
	s := &SoleUse{config: pool.ConnConfig, log: discard()}
	s.config.RuntimeParams["application_name"] = soleName()
	broken, err := s.take(t.Context())
	require.NoError(t, err)
	defer closeConn(t.Context(), broken)
	begun := time.Now()
	conn, err := s.take(t.Context()) // as retake does
	require.NoError(t, err)
	require.Less(t, time.Since(begun), soleGrace)
	closeConn(t.Context(), conn)
}

func TestLockLostToAnother(t *testing.T) {
	t.Parallel()
	address, admin := soleDatabase(t)
	first := takeSole(t, address, discard())
	// Another one is quicker.
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	u, err := url.Parse(address)
	require.NoError(t, err)
	locked := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `select pg_advisory_lock($1)`, int64(soleKey))
		locked <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(),
			`select count(*) from pg_locks l join pg_database d on d.oid = l.database
				where l.locktype = 'advisory' and not l.granted and l.objid = $1::bigint & 4294967295 and d.datname = $2`, int64(soleKey), u.Path[1:]).Scan(&n))
		return n > 0
	}, time.Minute, 5*time.Millisecond)
	_, err = admin.Exec(t.Context(), `select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.granted and d.datname = $1`, u.Path[1:])
	require.NoError(t, err)
	require.NoError(t, <-locked)
	select {
	case <-first.Done():
		var taken *SoleUseError
		require.ErrorAs(t, first.Err(), &taken)
	case <-time.After(time.Minute):
		require.Fail(t, "it believes to have the lock")
	}
	first.Release() // returns
}
