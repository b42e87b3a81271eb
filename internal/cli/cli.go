// Package cli is the command line that both binaries share: it reads flags and
// environment into the settings, and calls internal/app.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/telemetry"
)

// Process is what a command gets from the outside.
type Process struct {
	Version string
	Stdin   io.Reader // nil stands for os.Stdin
	Stdout  io.Writer
	Stderr  *os.File
	Environ []string
}

// Commands are the commands that both binaries have.
type Commands struct {
	Serve   ServeCommand   `cmd:"" help:"Run API and worker in one process, against a given PostgreSQL and Temporal."`
	API     APICommand     `cmd:"" help:"Run the API alone." name:"api"`
	Worker  WorkerCommand  `cmd:"" help:"Run a worker alone."`
	Migrate MigrateCommand `cmd:"" help:"Bring the database up to date."`
	Keys    KeysCommand    `cmd:"" help:"Make, list and revoke API keys; rotate the key for secrets at rest."`

	Send        SendCommand        `cmd:"" help:"Post an event."`
	Events      EventsCommand      `cmd:"" help:"Show events."`
	Deliveries  DeliveriesCommand  `cmd:"" help:"Show deliveries; cancel, retry, reschedule and replay them."`
	DeadLetters DeadLettersCommand `cmd:"" help:"Show, replay and discard what was given up."`
	Endpoints   EndpointsCommand   `cmd:"" help:"Show, create, change, pause and test endpoints."`
	Replays     ReplaysCommand     `cmd:"" help:"Send many deliveries again, at a rate, and look after it."`
	Audit       AuditCommand       `cmd:"" help:"Show who changed what."`
	Listen      ListenCommand      `cmd:"" help:"Run a receiver for trying things out: it prints what arrives, verifies it, and fails as told."`

	Version VersionCommand `cmd:"" help:"Print the version."`
}

// Main runs the command line that grammar describes and returns the exit code.
func Main(p Process, args []string, grammar any) int {
	ctx, stop := signalled(context.Background())
	defer stop()
	exit, exited := 0, false
	parser, err := kong.New(grammar,
		kong.Name("everpost"),
		kong.Description("Everpost delivers events to other people's HTTP endpoints and loses none. "+
			"A flag can be given as an environment variable instead; secrets belong there, because every user of a machine can see a command line."),
		kong.UsageOnError(), kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(code int) { exit, exited = code, true }), // after --help; Main returns
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}), kong.ValueFormatter(describe),
	)
	if err != nil {
		return fail(p, err)
	}
	command, err := parser.Parse(args)
	if exited {
		return exit
	}
	if err != nil {
		return fail(p, errors.New(friendly(err, args)))
	}
	if err := command.Run(); err != nil {
		return fail(p, err)
	}
	return 0
}

// fail says what is wrong in one line.
func fail(p Process, err error) int {
	_, _ = fmt.Fprintln(p.Stderr, "everpost: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}

// describe is the help of a flag: what it is, its default, its variable. The parser's
// own text leaves out the default of a flag with a placeholder.
func describe(v *kong.Value) string {
	var facts []string
	if v.HasDefault && v.Default != "" {
		facts = append(facts, "default "+v.Default)
	}
	for _, name := range v.Tag.Envs {
		facts = append(facts, "$"+name)
	}
	if len(facts) == 0 {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " (" + strings.Join(facts, ", ") + ")."
}

// friendly puts an error of the parser into plain words.
func friendly(err error, args []string) string {
	if len(args) == 0 {
		return "a command is missing; 'everpost --help' lists them"
	}
	if name, ok := unknownCommand(err); ok {
		return "no such command: " + name + "; 'everpost --help' lists them"
	}
	return err.Error() + "; see 'everpost --help' and 'everpost <command> --help'"
}

// unknownCommand is the name that stands where a command should: the parser takes it
// for an argument too many.
func unknownCommand(err error) (name string, ok bool) {
	failed, ok := errors.AsType[*kong.ParseError](err)
	if !ok || failed.Context == nil {
		return "", false
	}
	if selected := failed.Context.Selected(); selected != nil && selected.Leaf() {
		return "", false // the command is known, and takes no such argument
	}
	rest, ok := strings.CutPrefix(failed.Error(), "unexpected argument ")
	if !ok {
		return "", false
	}
	name, _, _ = strings.Cut(rest, ",") // ", did you mean …"
	for _, step := range slices.Backward(failed.Context.Path) {
		if step.Command != nil {
			return step.Command.Name + " " + name, true
		}
	}
	return name, true
}

// signalled is a context that ends with SIGTERM or SIGINT. A second signal ends
// the process at once, as if there were no handler.
func signalled(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Logger is the process's logger; it warns of variables that no setting has.
func (p Process) Logger(level string) *slog.Logger {
	logger := telemetry.NewLogger(p.Stderr, level)
	known := map[string]bool{}
	for _, s := range []any{config.Config{}, config.Standalone{}, ServeCommand{}, remote{}, ListenCommand{}} {
		collectNames(reflect.TypeOf(s), known)
	}
	for _, name := range config.Unknown(p.Environ, known) {
		logger.Warn("unknown setting in the environment is ignored", "name", name)
	}
	return logger
}

func collectNames(t reflect.Type, into map[string]bool) {
	for _, field := range reflect.VisibleFields(t) {
		for name := range strings.SplitSeq(field.Tag.Get("env"), ",") {
			into[name] = true
		}
	}
}
