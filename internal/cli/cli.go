// Package cli is the command line that both binaries share. It maps flags and environment
// variables to settings and calls internal/app or the API.
package cli

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/everpost/everpost/internal/cli/completion"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/webhook"
)

// Process is what a command gets from its process.
type Process struct {
	Version string
	Stdin   io.Reader // nil means os.Stdin
	Stdout  io.Writer
	Stderr  *os.File
	Environ []string

	// FindDatabase returns the URL of Everpost's database in the private PostgreSQL that
	// another process runs in a data directory. Nil in the binary without a private
	// PostgreSQL.
	FindDatabase func(dataDir string) (url string, err error)
}

// OnTerminal reports whether what the process prints is shown to a person, and kept nowhere.
func (p Process) OnTerminal() bool { return telemetry.IsTerminal(p.Stdout) }

// Commands are the commands that both binaries have.
type Commands struct {
	Serve   ServeCommand   `cmd:"" help:"Run API and worker in one process, against a given PostgreSQL and Temporal."`
	API     APICommand     `cmd:"" help:"Run the API alone." name:"api"`
	Worker  WorkerCommand  `cmd:"" help:"Run a worker alone."`
	Migrate MigrateCommand `cmd:"" help:"Migrate the database to this version."`
	Keys    KeysCommand    `cmd:"" help:"Create, list and revoke API keys; rotate the key for secrets at rest."`

	SetupTemporal SetupTemporalCommand `cmd:"" help:"Create Everpost's namespace and search attributes in Temporal."`
	Doctor        DoctorCommand        `cmd:"" help:"Check an installation, and say how to fix what is wrong."`

	Explain       ExplainCommand       `cmd:"" help:"Explain the state of a delivery, an event or an endpoint, by its id."`
	Send          SendCommand          `cmd:"" help:"Post an event."`
	Filters       FiltersCommand       `cmd:"" help:"Try filters of events."`
	Events        EventsCommand        `cmd:"" help:"Show events."`
	Deliveries    DeliveriesCommand    `cmd:"" help:"Show, cancel, retry, reschedule and replay deliveries."`
	DeadLetters   DeadLettersCommand   `cmd:"" help:"List, replay and discard dead letters."`
	Endpoints     EndpointsCommand     `cmd:"" help:"Show, create, change, pause and test endpoints."`
	EventTypes    EventTypesCommand    `cmd:"" help:"Show and change the catalogue of event types."`
	Tenants       TenantsCommand       `cmd:"" help:"Show, create, change and delete tenants."`
	Notifications NotificationsCommand `cmd:"" help:"Show and set whom Everpost tells of changes of endpoints, by mail or in a chat."`
	Replays       ReplaysCommand       `cmd:"" help:"Replay many deliveries at a rate, and control replays."`
	Attention     AttentionCommand     `cmd:"" help:"Show which endpoints and tenants need attention, over all tenants."`
	Stats         StatsCommand         `cmd:"" help:"Show attempts, ends and latencies by minute or hour."`
	ConsoleLink   ConsoleLinkCommand   `cmd:"" help:"Print a link that logs in to the console, once." name:"console-link"`
	Audit         AuditCommand         `cmd:"" help:"Show the audit log."`
	MCP           MCPCommand           `cmd:"" help:"Serve the Model Context Protocol, for agents that look at deliveries." name:"mcp"`
	Listen        ListenCommand        `cmd:"" help:"Run a test receiver that prints and verifies requests, and fails as configured."`

	Completion completion.ScriptCommand `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Help       HelpCommand              `cmd:"" help:"Show the help of a command."`
	Version    VersionCommand           `cmd:"" help:"Print the version."`

	Complete completion.CandidatesCommand `cmd:"" hidden:"" name:"__complete"`

	ShowVersion kong.VersionFlag `help:"Print the version." name:"version"`
}

// HelpCommand shows the help of a command, like the flag --help.
type HelpCommand struct {
	Command []string `arg:"" help:"The command, such as 'endpoints create'." optional:""`
}

// Run is never called: Main replaces the command by --help.
func (HelpCommand) Run() error { return nil }

// Main runs the command line that grammar describes and returns the exit code.
func Main(p Process, args []string, grammar any) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	exit, exited := exitDone, false
	parser, err := kong.New(grammar,
		kong.Name("everpost"),
		kong.Description("Everpost delivers events to other people's HTTP endpoints and loses none. "+
			"A flag can be given as an environment variable instead; secrets belong there, because every user of a machine can see a command line."),
		kong.UsageOnError(), kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(code int) { exit, exited = code, true }), // after --help; Main returns
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p),
		kong.BindTo(p.Stdout, (*io.Writer)(nil)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}), kong.ValueFormatter(flagHelp),
		kong.Vars{"version": "everpost " + p.Version},
		textMapper[webhook.EventID](), textMapper[webhook.EndpointID](), textMapper[webhook.DeliveryID](), textMapper[webhook.KeyID](),
		textMapper[webhook.ReplayID](), textMapper[instant](), textMapper[netip.Prefix](),
	)
	if err != nil {
		return fail(p, err)
	}
	hideOtherRoles(parser.Model.Node)
	groupSettings(parser.Model.Node)
	if p.FindDatabase == nil {
		requireDatabase(parser.Model.Node)
	}
	command, err := parser.Parse(helpLast(args))
	if exited {
		return exit
	}
	if err != nil {
		return fail(p, usage(explainParseError(err, args)))
	}
	command.Bind(parser.Model)
	if err := command.Run(); err != nil {
		return fail(p, err)
	}
	return exitDone
}

// fail prints the error in one line and returns its exit code.
func fail(p Process, err error) int {
	_, _ = fmt.Fprintln(p.Stderr, "everpost: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitCode(err)
}

// helpLast turns 'help send' into 'send --help'.
func helpLast(args []string) []string {
	if len(args) == 0 || args[0] != "help" || slices.Contains(args, "--help") {
		return args
	}
	return append(slices.Clone(args[1:]), "--help")
}

// hideOtherRoles hides the flags that a command does not use: 'api' and 'worker' share one
// struct of settings, in which the tag role names the command that uses a setting. A hidden
// flag can still be set, so that both commands can share an environment.
func hideOtherRoles(root *kong.Node) {
	for _, node := range root.Children {
		if node.Name != "api" && node.Name != "worker" {
			continue
		}
		for _, flag := range node.Flags {
			if role := flag.Tag.Get("role"); role != "" && role != node.Name {
				flag.Hidden = true
			}
		}
	}
}

// groupSettings shows the settings of a process under the titles that they have in the documentation.
func groupSettings(root *kong.Node) {
	for _, flag := range root.Flags {
		if section := flag.Tag.Get("section"); section != "" && section != "client" {
			flag.Group = &kong.Group{Key: section, Title: config.SectionTitle(section) + ":"}
		}
	}
	for _, node := range root.Children {
		groupSettings(node)
	}
}

// requireDatabase removes from the help of 'keys' what only works in the binary with a
// private PostgreSQL.
func requireDatabase(root *kong.Node) {
	for _, node := range root.Children {
		if node.Name != "keys" {
			continue
		}
		for _, command := range node.Children {
			for _, flag := range command.Flags {
				switch flag.Name {
				case "data-dir":
					flag.Hidden = true
				case "database-url":
					flag.Help, _, _ = strings.Cut(flag.Help, " Without one,")
				}
			}
		}
	}
}

// textMapper decodes values with their UnmarshalText. Its errors quote the value.
func textMapper[T any, P interface {
	*T
	encoding.TextUnmarshaler
}]() kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err //nolint:wrapcheck // kong adds the flag
		}
		var value T
		if err := P(&value).UnmarshalText([]byte(text)); err != nil {
			if reflect.TypeFor[T]() == reflect.TypeFor[netip.Prefix]() { // its own error is for programmers
				err = errors.New("is not a range of addresses such as 10.0.0.0/8")
			}
			return fmt.Errorf("%q %w", text, err)
		}
		target.Set(reflect.ValueOf(value))
		return nil
	}))
}

// flagHelp returns the help of a flag with its default and its environment variable. Kong's
// own text leaves out the default of a flag with a placeholder.
func flagHelp(v *kong.Value) string {
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

// explainParseError turns an error of kong into a readable message.
func explainParseError(err error, args []string) string {
	if len(args) == 0 {
		return "a command is missing; 'everpost --help' lists them"
	}
	if name, ok := unknownCommand(err); ok {
		return "no such command: " + name + "'everpost --help' lists them"
	}
	command := []string{"everpost"}
	if failed, ok := errors.AsType[*kong.ParseError](err); ok && failed.Context != nil {
		for _, step := range failed.Context.Path {
			if step.Command != nil {
				command = append(command, step.Command.Name)
			}
		}
	}
	return err.Error() + "; see '" + strings.Join(command, " ") + " --help'"
}

// unknownCommand returns the unknown command in an error, with kong's suggestions: kong
// reports it as an unexpected argument.
func unknownCommand(err error) (name string, ok bool) {
	failed, ok := errors.AsType[*kong.ParseError](err)
	if !ok || failed.Context == nil {
		return "", false
	}
	if selected := failed.Context.Selected(); selected != nil && selected.Leaf() {
		return "", false // the command is known and takes no such argument
	}
	rest, ok := strings.CutPrefix(failed.Error(), "unexpected argument ")
	if !ok {
		return "", false
	}
	name, like, _ := strings.Cut(rest, ",")
	if name += ";"; like != "" { // " did you mean …?"
		name += strings.ReplaceAll(like, `"`, "'")
	}
	name += " "
	for _, step := range slices.Backward(failed.Context.Path) {
		if step.Command != nil {
			return step.Command.Name + " " + name, true
		}
	}
	return name, true
}

// withSignals returns a context that is done after SIGTERM or SIGINT. A second signal ends
// the process at once.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Logger returns the process's logger and warns of unknown EVERPOST_ variables in the
// environment.
func (p Process) Logger(level string) *slog.Logger {
	logger := telemetry.NewLogger(p.Stderr, level)
	for _, name := range config.Unknown(p.Environ, Settings()) {
		logger.Warn("unknown setting in the environment is ignored", "name", name)
	}
	return logger
}

// Settings returns the settings of all commands, including the standalone binary's.
func Settings() []config.Setting {
	return config.Declared(config.Config{}, config.WebUI{}, config.Standalone{}, remote{}, ListenCommand{})
}
