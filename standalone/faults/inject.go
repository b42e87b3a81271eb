package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/localpg"
)

// scene is where a fault is injected.
type scene struct {
	in        *installation
	receivers *receivers
	load      *load
	tenant    string
	window    *window
}

// injection makes a fault. It returns when the fault is over and what it stopped is ready again.
type injection func(ctx context.Context, s *scene) error

func nothing(context.Context, *scene) error { return nil }

func (s *scene) parts(names []string) []*part {
	all := make([]*part, len(names))
	for i, name := range names {
		all[i] = s.in.part(name)
	}
	return all
}

// snapshot reads what is recorded just after a kill.
func (s *scene) snapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := s.in.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	s.window.recorded, err = readRecorded(ctx, conn, s.tenant)
	return err
}

// kill is kill -9 of some parts at once, and their start a moment later.
func kill(names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		parts := s.parts(names)
		for _, p := range parts {
			p.process.Kill()
		}
		if s.in.database != nil {
			if err := s.snapshot(ctx); err != nil {
				return err
			}
		}
		return restartDead(ctx, parts)
	}
}

// killAll is kill -9 of every process at once, PostgreSQL included, and their immediate start.
func killAll(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	if err := errors.Join(signalAll(syscall.SIGKILL, s.in.parts...), syscall.Kill(postmaster, syscall.SIGKILL)); err != nil {
		return fmt.Errorf("kill everything: %w", err)
	}
	for _, p := range s.in.parts {
		<-p.process.Exited()
	}
	if s.in.database != nil {
		conn, err := s.in.dial(ctx)
		if err != nil {
			return err
		}
		_ = conn.Close(ctx)
	}
	for _, p := range s.in.parts { // Temporal first: the others need it to start
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// terminate is SIGTERM, and a start when the process has ended.
func terminate(names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		for _, p := range s.parts(names) {
			if err := p.stop(); err != nil {
				return err
			}
			if err := p.restart(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// stop is SIGSTOP and, after d, SIGCONT.
func stop(d time.Duration, names ...string) injection {
	return func(ctx context.Context, s *scene) error {
		parts := s.parts(names)
		s.window.frozen = true
		if err := signalAll(syscall.SIGSTOP, parts...); err != nil {
			return err
		}
		return errors.Join(pause(ctx, d), signalAll(syscall.SIGCONT, parts...))
	}
}

// stopClaimed is stop of a worker for longer than Temporal waits for it, but not as long as the claims on its requests last: no other worker
// may send them meanwhile.
func stopClaimed(ctx context.Context, s *scene) error {
	longer := fields{"timeout": claimedTimeout.String()}
	for i, id := range s.load.ledger.ids {
		if _, err := s.load.call(ctx, i, http.MethodPatch, longer, nil, "endpoints", id); err != nil && i != deleted {
			return fmt.Errorf("give endpoint %d a longer timeout: %w", i, err)
		}
	}
	if err := pause(ctx, claimedAfter); err != nil {
		return err
	}
	s.window.until = time.Now() // from then on requests have that timeout
	if err := pause(ctx, claimedAfter); err != nil {
		return err
	}
	s.window.start = time.Now()
	return stop(veryLong, "worker-1")(ctx, s)
}

// stopPostgres is stop of all of PostgreSQL's processes.
func stopPostgres(ctx context.Context, s *scene) error {
	postmaster, err := s.in.postmaster()
	if err != nil {
		return err
	}
	s.window.frozen = true
	all := append(childrenOf(postmaster), postmaster)
	signal := func(number syscall.Signal) {
		for _, id := range all {
			_ = syscall.Kill(id, number) // a session may have ended
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	return pause(ctx, shortly)
}

func childrenOf(parent int) (ids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// The parent is the second field after the name, which is in parentheses.
		after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(after) > 1 && after[1] == strconv.Itoa(parent) {
			ids = append(ids, id)
		}
	}
	return ids
}

// signalPostgres signals the postmaster, which is started again by whoever supervises it.
func signalPostgres(number syscall.Signal) injection {
	return func(ctx context.Context, s *scene) error {
		postmaster, err := s.in.postmaster()
		if err != nil {
			return err
		}
		if err := syscall.Kill(postmaster, number); err != nil {
			return fmt.Errorf("send %s to PostgreSQL: %w", number, err)
		}
		for {
			if now, err := s.in.postmaster(); err == nil && now != postmaster {
				break
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("wait for another PostgreSQL: %w", err)
			}
		}
		conn, err := s.in.dial(ctx)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
}

// inDatabase runs f on a connection of its own.
func inDatabase(f func(ctx context.Context, conn *pgx.Conn) error) injection {
	return func(ctx context.Context, s *scene) error {
		conn, err := s.in.dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return f(ctx, conn)
	}
}

func execute(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// killSession is kill -9 of one session's process, after which PostgreSQL ends all others and recovers.
func killSession(ctx context.Context, s *scene) error {
	return inDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		var victim int
		err := conn.QueryRow(ctx, `select pid from pg_stat_activity
			where datname = $1 and pid <> pg_backend_pid() and backend_type = 'client backend' order by random() limit 1`, localpg.Database).Scan(&victim)
		if err != nil {
			return fmt.Errorf("choose a session: %w", err)
		}
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill a session: %w", err)
		}
		for conn.Ping(ctx) == nil { // until PostgreSQL has ended this one too
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		again, err := s.in.dial(ctx)
		if err != nil {
			return err
		}
		return again.Close(ctx)
	})(ctx, s)
}

// terminateSessions ends all other sessions of all databases, several times.
func terminateSessions(ctx context.Context, s *scene) error {
	return inDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		for range 4 {
			err := execute(ctx, conn, `select pg_terminate_backend(pid) from pg_stat_activity
				where pid <> pg_backend_pid() and backend_type = 'client backend'`)
			if err := errors.Join(err, pause(ctx, 200*time.Millisecond)); err != nil {
				return err
			}
		}
		return nil
	})(ctx, s)
}

// exhaustConnections takes all connections that are left, after it has ended those of Everpost, so that there are none for it.
func exhaustConnections(ctx context.Context, s *scene) error {
	at, err := s.in.databaseURL(localpg.Database)
	if err != nil {
		return err
	}
	at += "&application_name=faults"
	var taken []*pgx.Conn
	defer func() {
		for _, conn := range taken {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for end := time.Now().Add(shortly); time.Now().Before(end) && ctx.Err() == nil; {
		conn, err := pgx.Connect(ctx, at)
		if err != nil { // there are no more
			if len(taken) > 0 {
				_, _ = taken[0].Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
					where application_name <> 'faults' and backend_type = 'client backend' and random() < 0.5`)
			}
			_ = pause(ctx, 20*time.Millisecond)
			continue
		}
		taken = append(taken, conn)
	}
	return nil
}

// lockTable holds the strongest lock on a table.
func lockTable(name string) injection {
	return inDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		if err := execute(ctx, conn, "begin", "lock table "+name+" in access exclusive mode"); err != nil {
			return err
		}
		return errors.Join(pause(ctx, shortly), execute(ctx, conn, "rollback"))
	})
}

// readOnly makes every transaction read-only, as on a server that has become a standby.
func readOnly(ctx context.Context, s *scene) error {
	return inDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		if err := execute(ctx, conn, "alter system set default_transaction_read_only = on", "select pg_reload_conf()"); err != nil {
			return err
		}
		waited := pause(ctx, shortly)
		return errors.Join(waited, execute(context.WithoutCancel(ctx), conn, "set default_transaction_read_only = off",
			"alter system reset default_transaction_read_only", "select pg_reload_conf()"))
	})(ctx, s)
}

// during keeps something bad for a while.
func during(ctx context.Context, begin, end func() error) error {
	return errors.Join(begin(), pause(ctx, shortly), end())
}

// onReceivers makes the links to all receivers bad.
func onReceivers(t toxic) injection {
	return func(ctx context.Context, s *scene) error { return poisoned(ctx, s.receivers.links[:], t) }
}

// onLinks makes the links bad whose names begin so.
func onLinks(prefix string, t toxic) injection {
	return func(ctx context.Context, s *scene) error { return poisoned(ctx, s.in.linksFrom(prefix), t) }
}

func poisoned(ctx context.Context, links []*link, t toxic) error {
	return during(ctx, func() error {
		var all []error
		for _, l := range links {
			all = append(all, l.poison(t))
		}
		return errors.Join(all...)
	}, func() error {
		for _, l := range links {
			l.heal()
		}
		return nil
	})
}

// cutLinks closes links and lets no new connection through.
func cutLinks(prefix string) injection {
	return func(ctx context.Context, s *scene) error {
		links := s.in.linksFrom(prefix)
		return during(ctx, func() error {
			for _, l := range links {
				l.cut()
			}
			return nil
		}, func() error {
			var all []error
			for _, l := range links {
				all = append(all, l.restore())
			}
			return errors.Join(all...)
		})
	}
}

func (in *installation) linksFrom(prefix string) []*link {
	var names []string
	for name := range in.links {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	links := make([]*link, len(names))
	for i, name := range names {
		links[i] = in.links[name]
	}
	return links
}

// holdReceivers lets no receiver answer.
func holdReceivers(ctx context.Context, s *scene) error {
	return during(ctx, func() error {
		for _, r := range s.receivers.all {
			r.Hold()
		}
		return nil
	}, func() error {
		for _, r := range s.receivers.all {
			r.Release()
		}
		return nil
	})
}

// restartReceivers closes all receivers, with the requests under way, and starts them again.
func restartReceivers(ctx context.Context, s *scene) error {
	return during(ctx, func() error {
		for _, r := range s.receivers.all {
			r.Stop()
		}
		return nil
	}, func() error {
		var all []error
		for _, r := range s.receivers.all {
			all = append(all, r.Restart())
		}
		return errors.Join(all...)
	})
}

// reachTime bounds the wait for a process to reach a failpoint: the load is over by then.
const reachTime = 5 * time.Second

// atFailpoint arms a failpoint, waits until a process has died there, and starts that again. A point that is not reached does no harm.
func atFailpoint(name string) injection {
	return func(ctx context.Context, s *scene) error {
		if err := os.WriteFile(s.in.failpoint, []byte(name), 0o600); err != nil {
			return fmt.Errorf("arm failpoint %s: %w", name, err)
		}
		reached, cancel := context.WithTimeout(ctx, reachTime)
		defer cancel()
		for s.in.allRun() {
			if pause(reached, 5*time.Millisecond) != nil {
				s.window.missed = true
				return os.Remove(s.in.failpoint)
			}
		}
		s.window.start = time.Now()
		return restartDead(ctx, s.in.parts)
	}
}

func (in *installation) allRun() bool {
	return !slices.ContainsFunc(in.parts, func(p *part) bool { return !p.process.Running() })
}
