package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the operating system user that the database's processes run as.
type account struct {
	name     string
	uid, gid int
	dropped  bool // not the caller's own account: the child runs with other credentials
}

// databaseAccount returns the caller's own account. PostgreSQL refuses to run as root; for
// root it returns the account "postgres" (created by PostgreSQL's packages), else "nobody".
func databaseAccount() (account, error) {
	if os.Geteuid() != 0 {
		name, err := userName(os.Geteuid())
		if err != nil {
			return account{}, err
		}
		return account{name: name, uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return account{}, fmt.Errorf("read account %s: %w", name, err)
		}
		return account{name: name, uid: uid, gid: gid, dropped: true}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: add one")
}

// userName returns a user id's name. PostgreSQL looks it up in the same way.
func userName(uid int) (string, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "", fmt.Errorf("PostgreSQL needs a named user, and user id %d has no name: %w", uid, err)
	}
	return u.Username, nil
}

// credential returns the credential for a child's attributes; nil keeps the caller's.
func (a account) credential() *syscall.Credential {
	if !a.dropped {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)} //nolint:gosec // ids come from the kernel or passwd
}

// own makes the account the owner of a directory.
func (a account) own(dir string) error {
	if !a.dropped {
		return nil
	}
	if err := os.Lchown(dir, a.uid, a.gid); err != nil {
		return fmt.Errorf("give %s to user %s: %w", dir, a.name, err)
	}
	return nil
}

// canEnter reports whether the account can enter dir. A child process tries it, because
// access lists and security modules also decide.
func (a account) canEnter(ctx context.Context, bin binaries, dir string) (bool, error) {
	if !a.dropped {
		return true, nil
	}
	probe := func(dir string) error {
		cmd := exec.CommandContext(ctx, bin.path("postgres"), "--version") //nolint:gosec // a path this package put together
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
		return orContext(ctx, cmd.Run())
	}
	if err := probe("/"); err != nil {
		return false, fmt.Errorf("run PostgreSQL as user %s: %w", a.name, err)
	}
	err := probe(dir)
	if errors.Is(err, os.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("enter %s as user %s: %w", dir, a.name, err)
	}
	return true, nil
}
