package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

// run runs a command line. Flags read the test process's environment; environ is only used
// for the warnings.
func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var out bytes.Buffer
	code = cli.Main(cli.Process{Version: "1.2.3", Stdout: &out, Stderr: file, Environ: environ}, args, &cli.Commands{})
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return code, out.String(), string(text)
}

// The help of a command lists each setting with its variable and its default.
func TestHelpListsEverySetting(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"serve", "api", "worker"} {
		code, help, _ := run(t, nil, command, "--help")
		require.Zero(t, code)
		require.Contains(t, help, "TEMPORAL_ADDRESS", command)
		words := strings.Join(strings.Fields(help), " ") // lines are wrapped
		for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
			tag := field.Tag
			if field.Anonymous {
				continue // its fields follow separately
			}
			if role := tag.Get("role"); role != "" && role != command && command != "serve" {
				require.NotContains(t, words, "$"+tag.Get("env"), "%s has no use for it", command)
				continue
			}
			require.Contains(t, words, "$"+tag.Get("env"), command)
			if value := tag.Get("default"); value != "" {
				require.Contains(t, words, "(default "+value+", $"+tag.Get("env")+").", command)
			}
		}
	}
	for command, setting := range map[string]string{
		"migrate": "EVERPOST_DATABASE_URL", "keys create": "EVERPOST_DATABASE_URL", "keys list": "EVERPOST_DATABASE_URL",
		"keys revoke": "EVERPOST_DATABASE_URL", "keys rewrap": "EVERPOST_KEK_OLD_FILES", "": "migrate", "keys": "revoke",
	} {
		code, help, _ := run(t, nil, append(strings.Fields(command), "--help")...)
		require.Zero(t, code, command)
		require.Contains(t, help, setting, command)
	}
}

// The settings of a process are in the groups of the documentation, each once.
func TestHelpHasGroups(t *testing.T) {
	t.Parallel()
	code, help, _ := run(t, nil, "serve", "--help")
	require.Zero(t, code)
	for _, title := range []string{"Flags:", "Addresses and logs:", "Database:", "Keys:", "Receivers:", "Deliveries:", "Tenants:"} {
		require.Equal(t, 1, strings.Count("\n"+help, "\n"+title+"\n"), title)
		require.Contains(t, help, title)
	}
	_, help, _ = run(t, nil, "events", "list", "--help")
	require.NotContains(t, help, "Command-line client")
}

// Every variable of a flag is a setting that the documentation lists.
func TestEveryVariableIsASetting(t *testing.T) {
	t.Parallel()
	known := map[string]config.Setting{}
	for _, s := range cli.Settings() {
		require.NotEmpty(t, s.Section, s.Variable)
		known[s.Variable] = s
	}
	parser, err := kong.New(&cli.Commands{}, kong.Vars{"version": ""})
	require.NoError(t, err)
	seen := map[string]bool{}
	require.NoError(t, kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, variable := range flag.Envs {
				require.Contains(t, known, variable)
				require.Equal(t, "--"+flag.Name, known[variable].Flag)
				seen[variable] = true
			}
		}
		return next(nil)
	}))
	for _, s := range config.Declared(config.Config{}, config.WebUI{}) {
		require.Contains(t, seen, s.Variable)
	}
}

// An invalid command line is reported in one line that names the error, and nothing is
// started.
func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	const kek = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "a command is missing"},
		{"sevre", "no such command: sevre; did you mean 'serve'? 'everpost --help' lists them"},
		{"nonsense --colour", "no such command: nonsense;"},
		{"keys mint", "no such command: keys mint;"},
		{"serve now", "unexpected argument now"},
		{"keys", `expected one of "create"`},
		{"serve --colour", "--colour"},
		{"serve --log-level=loud", "--log-level"},
		{"serve --retention=tomorrow", "--retention"},
		{"serve --allowed-cidrs=10.0.0.0", "--allowed-cidrs"},
		{"serve --extra-ports=0", "--extra-ports"},
		{"serve --kek=" + kek, "EVERPOST_DATABASE_URL: is required"},
		{"serve --database-url=postgres://localhost/x", "EVERPOST_KEK_FILE: is required"},
		{"serve --database-url=localhost --kek=" + kek, "EVERPOST_DATABASE_URL: must be a URL"},
		{"api --database-url=postgres://localhost/x --kek=short", "EVERPOST_KEK: "},
		{"api --database-url=postgres://localhost/x --kek-file=/does/not/exist", "EVERPOST_KEK_FILE: "},
		{"worker --database-url=postgres://localhost/x --retention=1m --listen=x --kek=" + kek, "EVERPOST_LISTEN: must be host:port"},
		{"worker --database-url=postgres://localhost/x --retention=1m --kek=" + kek, "EVERPOST_RETENTION: must be at least 1h"},
		{"migrate", "--database-url"},
		{"keys list", "--database-url"},
		{"keys create --database-url=postgres://localhost/x", "--operator or --tenant"},
		{"keys create --database-url=postgres://localhost/x --operator --tenant=acme", "--tenant"},
		{"keys create --database-url=postgres://localhost/x --tenant=acme --scope=all", "--scope"},
		{"keys create --database-url=postgres://localhost/x --tenant=acme --expires-in=-1h", "--expires-in"},
		{"keys revoke --database-url=postgres://localhost/x key_1", `"key_1" is not an id of the form key_…`},
		{"keys revoke --database-url=postgres://localhost/x", "<id>"},
	} {
		code, stdout, stderr := run(t, nil, strings.Fields(c.args)...)
		require.Equal(t, 2, code, c.args)
		require.Empty(t, stdout, c.args)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s: %s", c.args, stderr)
		require.Contains(t, stderr, c.want, c.args)
	}
}

// An unreachable database is reported in one line, without the password.
func TestUnreachableDatabase(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"migrate", "keys list"} {
		code, _, stderr := run(t, nil, append(strings.Fields(command), "--database-url=postgres://someone:canary@127.0.0.1:1/x")...)
		require.Equal(t, 5, code, command)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		require.Contains(t, stderr, "127.0.0.1", command)
		require.NotContains(t, stderr, "canary", command)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"version", "--version"} {
		code, stdout, stderr := run(t, nil, way)
		require.Zero(t, code)
		require.Equal(t, "everpost 1.2.3\n", stdout)
		require.Empty(t, stderr)
	}
}

// An unknown variable only causes a warning, and the settings of all commands are known.
func TestUnknownVariableWarns(t *testing.T) {
	t.Parallel()
	environ := []string{"EVERPOST_LITSEN=:80", "EVERPOST_UI_URL=http://x", "EVERPOST_TEST_DATABASE_URL=x", "PATH=/"}
	for _, s := range []any{config.Config{}, config.Standalone{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(s)) {
			environ = append(environ, field.Tag.Get("env")+"=x")
		}
	}
	code, _, stderr := run(t, environ, "migrate", "--database-url="+postgrestest.NewEmpty(t))
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, `"name":"EVERPOST_LITSEN"`)
	require.Equal(t, 1, strings.Count(stderr, "unknown setting"), stderr)
}

// Migration, and the creation, listing and revocation of keys.
func TestMigrateAndKeys(t *testing.T) {
	t.Parallel()
	address := postgrestest.NewEmpty(t)
	url := "--database-url=" + address
	code, _, stderr := run(t, nil, "migrate", "--check", url)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stderr, "run 'everpost migrate'")
	for _, check := range []string{"--check=false", "--check=false", "--check"} { // the second time is no error
		code, stdout, stderr := run(t, nil, "migrate", check, url)
		require.Zero(t, code, stderr)
		require.Equal(t, "the database is up to date\n", stdout)
	}
	store, err := stores.Open(t.Context(), stores.Config{URL: address, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, _, err = store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)

	for _, whose := range [][]string{{"--operator"}, {"--tenant=acme", "--scope=admin", "--expires-in=24h"}} {
		code, key, stderr := run(t, nil, append([]string{"keys", "create", "--name=laptop", url}, whose...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, 1, strings.Count(key, "\n"), "the key and nothing else, for scripts")
		list := []string{"keys", "list", url}
		scope := "operator"
		if whose[0] != "--operator" {
			list, scope = append(list, "--tenant=acme"), "admin"
		}
		code, table, _ := run(t, nil, list...)
		require.Zero(t, code)
		lines := strings.Split(strings.TrimSpace(table), "\n")
		require.Len(t, lines, 2, table)
		require.Contains(t, lines[1], scope)
		require.Contains(t, lines[1], "laptop")
		id := strings.Fields(lines[1])[0]
		require.NotContains(t, table, strings.TrimSpace(key), "a key's text is shown once")

		revoke := append([]string{"keys", "revoke", url, id}, list[3:]...)
		code, stdout, stderr := run(t, nil, revoke...)
		require.Zero(t, code, stderr)
		require.Equal(t, "revoked "+id+"\n", stdout)
		_, table, _ = run(t, nil, list...)
		require.NotContains(t, table, id)
	}
	code, _, stderr = run(t, nil, "keys", "create", url, "--tenant=nobody")
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "tenant nobody: ")
	code, _, stderr = run(t, nil, "keys", "revoke", url, webhook.NewKeyID().String())
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "no such key")
}
