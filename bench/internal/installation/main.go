package installation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// ErrUsage says that the command line was not understood, or help was asked for; the flags
// have printed it.
var ErrUsage = errors.New("usage")

// Main is the main function of a program that measures: it runs the command, whose
// surroundings are arguments, and ends the process with 2 after ErrUsage, with 1 after any
// other error.
func Main(name string, command func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	// What a first signal begins, a second one does not wait for: the installation is told
	// to stop by the system then.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, ErrUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// SettingsFlag adds -set, which collects settings of the installation.
func SettingsFlag(flags *flag.FlagSet, settings map[string]string) {
	flags.Func("set", "a setting of the installation, `NAME=VALUE`; may be repeated. Those in the environment are not passed on", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("is not NAME=VALUE")
		}
		settings[name] = value
		return nil
	})
}
