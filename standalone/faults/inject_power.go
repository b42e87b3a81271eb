package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/everpost/everpost/internal/localpg"
)

// powerCut is the class of a power cut. It needs a copy of the database from before the load.
const powerCut = "power-cut"

// backup copies the files of the running database, without its log of changes.
func (in *installation) backup(ctx context.Context) error {
	postmaster, err := in.postmaster()
	if err != nil {
		return err
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", postmaster))
	if err != nil {
		return fmt.Errorf("find PostgreSQL's programs: %w", err)
	}
	at, err := in.databaseURL(localpg.Database)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(in.copyDir()); err != nil {
		return fmt.Errorf("remove the last copy: %w", err)
	}
	text, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "pg_basebackup"), "--dbname", at, "--pgdata", in.copyDir(),
		"--checkpoint", "fast", "--wal-method", "none", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the database: %w: %s", err, text)
	}
	return nil
}

func (in *installation) copyDir() string { return filepath.Join(in.home, "copy") }
func (in *installation) walDir() string  { return filepath.Join(in.home, "wal") }

// cutPower ends every process at once, and leaves of the database what PostgreSQL had flushed to the disk by then: the copy from before the
// load, and the log of changes up to there. Without synchronous commits, what was acknowledged would be lost.
func cutPower(ctx context.Context, s *scene) error {
	conn, err := s.in.dial(ctx)
	if err != nil {
		return err
	}
	if err := signalAll(syscall.SIGSTOP, s.in.parts...); err != nil { // nothing is acknowledged from now on
		return err
	}
	// What they had sent to PostgreSQL goes on there, and whoever reads may see its result: that has to be flushed, too.
	for busy := true; busy; {
		err := conn.QueryRow(ctx, `select exists (select from pg_stat_activity
			where backend_type = 'client backend' and state = 'active' and pid <> pg_backend_pid())`).Scan(&busy)
		if err = errors.Join(err, pause(ctx, leftTick)); err != nil {
			return fmt.Errorf("wait for statements under way: %w", err)
		}
	}
	var flushed, dir string
	err = conn.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text, current_setting('data_directory')").Scan(&flushed, &dir)
	if err == nil {
		_, err = conn.Exec(ctx, "select pg_switch_wal()") // a recovery wants to see that something comes after its end
	}
	for _, p := range s.in.parts {
		p.process.Kill()
	}
	if err = errors.Join(err, conn.Close(ctx), os.RemoveAll(s.in.walDir())); err != nil {
		return fmt.Errorf("read what is flushed: %w", err)
	}
	if err := os.CopyFS(s.in.walDir(), os.DirFS(filepath.Join(dir, "pg_wal"))); err != nil { // an orderly stop would remove some of it
		return fmt.Errorf("copy the log of changes: %w", err)
	}
	if err := s.in.restoreTo(ctx, dir, flushed); err != nil {
		return err
	}
	for _, p := range s.in.parts { // Temporal first: the others need it to start
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restoreTo replaces the database in a directory by its copy and the log of changes up to a position.
func (in *installation) restoreTo(ctx context.Context, dir, position string) error {
	if err := in.database.Load().Stop(ctx); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("find the database: %w", err)
	}
	err = errors.Join(os.RemoveAll(dir), os.Rename(in.copyDir(), dir), os.Chmod(in.walDir(), 0o755),
		os.WriteFile(filepath.Join(dir, "recovery.signal"), nil, 0o600))
	if err != nil {
		return fmt.Errorf("put the copy in place: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Getuid() == 0 {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(owner.Uid), int(owner.Gid)))
		})
		if err != nil {
			return fmt.Errorf("give the copy to PostgreSQL's account: %w", err)
		}
	}
	in.recovery = map[string]string{
		"restore_command": "cp " + strconv.Quote(filepath.Join(in.walDir(), "%f")) + ` "%p"`, "recovery_target_lsn": position,
		"recovery_target_inclusive": "off", "recovery_target_action": "promote",
	}
	return in.superviseDatabase(ctx)
}
