package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// soleKey is the key of the advisory lock that a standalone installation holds, in all databases
	// and schemas: "everpost" in ASCII.
	soleKey = 0x65766572706f7374

	// soleGrace is how long to wait for a lock that another session holds: the server takes a
	// moment to notice that a process was killed.
	soleGrace = 5 * time.Second
	solePoll  = 100 * time.Millisecond
	soleRetry = time.Second // the longest pause between two tries to connect: meanwhile the lock is free

	// soleBeat is how often the idle connection is checked, and how long an answer may take.
	soleBeat = 5 * time.Second

	// maxApplicationName is what the server keeps of a name, in bytes (NAMEDATALEN).
	maxApplicationName = 63
)

// SoleUseError is the error when another standalone installation uses the database.
type SoleUseError struct {
	Holder string    // the name of its session; "" when unknown
	Since  time.Time // when it connected; zero when unknown
}

func (e *SoleUseError) Error() string {
	known := ""
	if e.Holder != "" {
		known = fmt.Sprintf(" (%s, connected since %s)", e.Holder, e.Since.UTC().Format(time.RFC3339))
	}
	return "another everpost standalone" + known + " uses this database: stop that one, or give this one a PostgreSQL server of its own"
}

// SoleUse is the lock that keeps other standalone installations off a database. It is a session's
// advisory lock: the server releases it when the connection ends, however it ends.
type SoleUse struct {
	config *pgx.ConnConfig
	log    *slog.Logger

	end  context.CancelFunc
	done chan struct{} // closed when the lock is no longer held
	err  error         // why, unless Release was called; read it after done
}

// TakeSoleUse takes the lock of the database that the connection string names. It holds the lock
// until Release, and takes it again whenever its connection breaks. The error is a *SoleUseError when
// another installation has the lock.
func TakeSoleUse(ctx context.Context, url string, log *slog.Logger) (*SoleUse, error) {
	pool, err := poolConfig(Config{URL: url})
	if err != nil {
		return nil, err
	}
	s := &SoleUse{config: pool.ConnConfig, log: log, done: make(chan struct{})}
	s.config.RuntimeParams["application_name"] = soleName()
	conn, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	go s.hold(ctx, conn)
	return s, nil
}

// soleName is the name of the session. Processes that find the lock taken report it, and this one
// finds a session of its own by it that broke without the server noticing.
func soleName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("everpost standalone %s, process %d on %s", rand.Text()[:8], os.Getpid(), host)
	return name[:min(len(name), maxApplicationName)]
}

// Done returns a channel that is closed when the lock is no longer held: after Release, or when the
// connection broke and another installation has taken the lock. This one must stop then.
func (s *SoleUse) Done() <-chan struct{} { return s.done }

// Err is the *SoleUseError of a lock that another installation has taken. It is nil until Done is
// closed, and after Release.
func (s *SoleUse) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Release releases the lock. Calling it again does nothing.
func (s *SoleUse) Release() {
	s.end()
	<-s.done
}

// hold owns the connection until ctx ends.
func (s *SoleUse) hold(ctx context.Context, conn *pgx.Conn) {
	defer close(s.done)
	for {
		err := watchConn(ctx, conn)
		closeConn(ctx, conn)
		if ctx.Err() != nil {
			return
		}
		s.log.WarnContext(ctx, "the connection that keeps other standalone installations off the database broke; taking the lock again",
			slog.Any("error", err))
		if conn, err = s.retake(ctx); err != nil {
			if ctx.Err() == nil {
				s.err = err
			}
			return
		}
		s.log.InfoContext(ctx, "the lock on the database is taken again")
	}
}

// retake tries to take the lock again until it succeeds, or another installation has it.
func (s *SoleUse) retake(ctx context.Context) (*pgx.Conn, error) {
	for pause := reconnectFirst; ; pause = min(2*pause, soleRetry) {
		conn, err := s.take(ctx)
		if err == nil {
			return conn, nil
		}
		if _, taken := errors.AsType[*SoleUseError](err); taken {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// take opens a connection and takes the lock on it.
func (s *SoleUse) take(ctx context.Context) (_ *pgx.Conn, err error) {
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return nil, fmt.Errorf("lock the database: %w", err)
	}
	defer func() {
		if err != nil {
			closeConn(ctx, conn)
		}
	}()
	// The session is idle while this process lives. If the machine vanishes, the server notices
	// within half a minute instead of two hours.
	_, err = conn.Exec(ctx, `select set_config('idle_session_timeout', '0', false),
		set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)`)
	if err != nil {
		return nil, fmt.Errorf("lock the database: %w", err)
	}
	poll := time.NewTicker(solePoll)
	defer poll.Stop()
	for begun := time.Now(); ; {
		var locked bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1)`, int64(soleKey)).Scan(&locked); err != nil {
			return nil, fmt.Errorf("lock the database: %w", err)
		}
		if locked {
			return conn, nil
		}
		holder, err := s.holder(ctx, conn)
		if err != nil {
			return nil, err
		}
		if holder != nil && time.Since(begun) >= soleGrace {
			return nil, holder
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("lock the database: %w", ctx.Err())
		}
	}
}

// holder returns which session has the lock, nil for none. It ends a session of this process itself,
// whose connection broke without the server noticing.
func (s *SoleUse) holder(ctx context.Context, conn *pgx.Conn) (*SoleUseError, error) {
	var (
		pid   int32
		name  *string // null when the login may not see it
		since *time.Time
	)
	err := conn.QueryRow(ctx, `
		select l.pid, a.application_name, a.backend_start
		from pg_locks l left join pg_stat_activity a using (pid)
		where l.locktype = 'advisory' and l.granted and l.objsubid = 1
			and l.database = (select oid from pg_database where datname = current_database())
			and (l.classid::bigint << 32) | l.objid::bigint = $1`, int64(soleKey)).Scan(&pid, &name, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no session has it
	}
	if err != nil {
		return nil, fmt.Errorf("look up the lock on the database: %w", err)
	}
	if name != nil && *name == s.config.RuntimeParams["application_name"] {
		if _, err := conn.Exec(ctx, `select pg_terminate_backend($1)`, pid); err != nil {
			return nil, fmt.Errorf("end a session of this process that has locked the database: %w", err)
		}
		return nil, nil //nolint:nilnil // none in a moment
	}
	found := &SoleUseError{}
	if name != nil && since != nil {
		found.Holder, found.Since = strings.TrimPrefix(*name, "everpost standalone "), *since
	}
	return found, nil
}

// watchConn returns when the connection is broken, or ctx ends.
func watchConn(ctx context.Context, conn *pgx.Conn) error {
	for {
		err := within(ctx, soleBeat, conn.PgConn().WaitForNotification)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && (conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		if err := within(ctx, soleBeat, conn.Ping); err != nil {
			return err
		}
	}
}

// closeConn closes a connection even if ctx has ended: the server releases the lock at once.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
