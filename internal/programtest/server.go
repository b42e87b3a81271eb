package programtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// RunAs makes a program run as the owner of a file or directory of a server, if this process is root's, and gives it its own files: root's
// tests run PostgreSQL under another account, which alone may use its socket.
func RunAs(command *exec.Cmd, server string, files ...string) error {
	info, err := os.Stat(server)
	if err != nil || os.Geteuid() != 0 {
		return nil //nolint:nilerr // a server that is not on this machine
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is not known", server)
	}
	for _, file := range files {
		if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give a server its files: %w", err)
		}
	}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	return nil
}

// FreePort returns a port of 127.0.0.1 that nothing listens at.
func FreePort(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port, listener.Close()
}
