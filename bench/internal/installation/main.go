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

// ErrUsage reports an invalid command line, or a request for help; the flag package has
// printed the message.
var ErrUsage = errors.New("usage")

// Main is the main function of a measuring program. It runs the command and ends the
// process with 2 after ErrUsage, with 1 after any other error.
func Main(name string, command func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	// The first signal cancels ctx. A second one ends this process at once; the kernel then
	// stops the installation.
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
