package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/localpg"
)

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
	return s.wait(ctx)
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

// signalPostgres signals the postmaster, which its supervisor starts again.
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
func (s *scene) inDatabase(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := s.in.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(conn)
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
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
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
	})
}

// terminateSessions ends all other sessions of all databases, several times.
func terminateSessions(ctx context.Context, s *scene) error {
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		for range 4 {
			err := execute(ctx, conn, `select pg_terminate_backend(pid) from pg_stat_activity
				where pid <> pg_backend_pid() and backend_type = 'client backend'`)
			if err := errors.Join(err, pause(ctx, 200*time.Millisecond)); err != nil {
				return err
			}
		}
		return nil
	})
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
	for end := time.Now().Add(s.load.plan.faultFor); time.Now().Before(end) && ctx.Err() == nil; {
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
	return func(ctx context.Context, s *scene) error {
		return s.inDatabase(ctx, func(conn *pgx.Conn) error {
			if err := execute(ctx, conn, "begin", "lock table "+name+" in access exclusive mode"); err != nil {
				return err
			}
			return errors.Join(s.wait(ctx), execute(ctx, conn, "rollback"))
		})
	}
}

// slowDisk lets each commit wait 100 ms for the disk.
func slowDisk(ctx context.Context, s *scene) error {
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		err := execute(ctx, conn, "alter system set commit_delay = 100000", "alter system set commit_siblings = 0", "select pg_reload_conf()")
		if err != nil {
			return err
		}
		waited := s.wait(ctx)
		return errors.Join(waited, execute(context.WithoutCancel(ctx), conn,
			"alter system reset commit_delay", "alter system reset commit_siblings", "select pg_reload_conf()"))
	})
}

// readOnly makes every transaction read-only, as on a server that has become a standby.
func readOnly(ctx context.Context, s *scene) error {
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		if err := execute(ctx, conn, "alter system set default_transaction_read_only = on", "select pg_reload_conf()"); err != nil {
			return err
		}
		waited := s.wait(ctx)
		return errors.Join(waited, execute(context.WithoutCancel(ctx), conn, "set default_transaction_read_only = off",
			"alter system reset default_transaction_read_only", "select pg_reload_conf()"))
	})
}

// becomeStandby makes PostgreSQL a hot standby, which answers and only reads, and then the primary again. Its sessions stay.
func becomeStandby(ctx context.Context, s *scene) error {
	var dir string
	err := s.inDatabase(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `show data_directory`).Scan(&dir)
	})
	if err != nil {
		return fmt.Errorf("find the data of PostgreSQL: %w", err)
	}
	mark := filepath.Join(dir, "standby.signal")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("make PostgreSQL a standby: %w", err)
	}
	// It belongs to the account of the server, which removes it.
	if info, err := os.Stat(dir); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = os.Chown(mark, int(owner.Uid), int(owner.Gid))
		}
	}
	if err := signalPostgres(syscall.SIGINT)(ctx, s); err != nil {
		return errors.Join(err, os.Remove(mark))
	}
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		waited := s.wait(ctx)
		return errors.Join(waited, execute(context.WithoutCancel(ctx), conn, "select pg_promote()"))
	})
}
