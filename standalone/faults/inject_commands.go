package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/processtest"
)

// The settings of the keys that encrypt secrets.
const (
	keySetting  = "EVERPOST_KEK"
	oldSetting  = "EVERPOST_KEK_OLD"
	keyBytes    = 32
	killsAtMost = 3                      // of one command, before it may end
	killedAfter = 400 * time.Millisecond // of its start, at most
)

// killRewrap gives all processes a new key, kills the command that rewraps the secrets before or after it writes some, and runs it again.
// Then the processes start without the old key: what it had not rewrapped would keep them from it.
func killRewrap(point string) injection {
	return func(ctx context.Context, s *scene) error {
		bytes := make([]byte, keyBytes)
		_, _ = rand.Read(bytes)
		parts := s.in.parts[1:] // without Temporal
		restart := func(set func(env processtest.Settings)) error {
			for _, p := range parts {
				if err := p.stop(); err != nil {
					return err
				}
				set(p.env)
			}
			return restartDead(ctx, parts)
		}
		if err := restart(func(env processtest.Settings) {
			env[oldSetting], env[keySetting] = env[keySetting], base64.StdEncoding.EncodeToString(bytes)
		}); err != nil {
			return err
		}
		command := func() (processtest.Finished, error) {
			return processtest.Run(ctx, parts[0].program, parts[0].env, "keys", "rewrap")
		}
		if err := os.WriteFile(s.in.failpoint, []byte(point), 0o600); err != nil {
			return fmt.Errorf("arm failpoint %s: %w", point, err)
		}
		killed, err := command()
		if err != nil || killed.Code >= 0 {
			return errors.Join(err, fmt.Errorf("keys rewrap was not killed at %s: it ended with %d: %s", point, killed.Code, killed.Stderr))
		}
		done, err := command()
		if err != nil || done.Code != 0 {
			return errors.Join(err, fmt.Errorf("keys rewrap ended with %d: %s", done.Code, done.Stderr))
		}
		return restart(func(env processtest.Settings) { delete(env, oldSetting) })
	}
}

// killMigrate kills the migration of a new database a few times at random moments, and runs it to its end. The result is the same as that
// of a migration that nothing has killed.
func killMigrate(ctx context.Context, s *scene) error {
	conn, err := s.in.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("migrated_%d", s.in.tenants)
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	at, err := s.in.databaseURL(name)
	if err != nil {
		return err
	}
	program, env := s.in.parts[1].program, processtest.Settings{"EVERPOST_DATABASE_URL": at}
	for range killsAtMost {
		after, _ := rand.Int(rand.Reader, big.NewInt(int64(killedAfter)))
		process, err := processtest.Launch(program, env, s.in.log, "migrate")
		if err != nil {
			return fmt.Errorf("start migrate: %w", err)
		}
		select {
		case <-process.Exited():
		case <-time.After(time.Duration(after.Int64())):
			process.Kill()
			<-process.Exited()
		}
	}
	for _, args := range [][]string{{"migrate"}, {"migrate", "--check"}} {
		done, err := processtest.Run(ctx, program, env, args...)
		if err != nil || done.Code != 0 {
			return errors.Join(err, fmt.Errorf("%s ended with %d: %s", strings.Join(args, " "), done.Code, done.Stderr))
		}
	}
	return s.sameSchema(ctx, conn, at)
}

// schema is a fingerprint of all columns, indexes and functions.
const schema = `select md5(string_agg(line, e'\n' order by line)) from (
	select concat_ws(' ', table_name, column_name, data_type, column_default, is_nullable) from information_schema.columns
		where table_schema = 'public' and table_name !~ '_[0-9]{8}$'
	union all select indexdef from pg_indexes where schemaname = 'public' and tablename !~ '_[0-9]{8}$'
	union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace and prokind = 'f') s (line)`

// sameSchema compares another database with the one of a connection, and drops it.
func (s *scene) sameSchema(ctx context.Context, conn *pgx.Conn, at string) error {
	other, err := pgx.Connect(ctx, at)
	if err != nil {
		return fmt.Errorf("connect to the new database: %w", err)
	}
	var want, got string
	err = errors.Join(conn.QueryRow(ctx, schema).Scan(&want), other.QueryRow(ctx, schema).Scan(&got), other.Close(ctx))
	if err != nil {
		return fmt.Errorf("compare the databases: %w", err)
	}
	if want != got {
		s.load.ledger.problemf("a migration that was killed made another schema")
	}
	if _, err := conn.Exec(ctx, "drop database "+other.Config().Database+" with (force)"); err != nil {
		return fmt.Errorf("drop the new database: %w", err)
	}
	return nil
}
