package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/cli"

	"github.com/everpost/everpost/internal/programtest"
)

// The candidates for words as a shell passes them.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		words []string
		want  string // candidates, separated by blanks
	}{
		{[]string{"endpo"}, "endpoints"},
		{[]string{"tenants", ""}, "create delete export get list update"},
		{[]string{"endpoints", "res"}, "resume"},
		{[]string{"replays", "create", "--sou"}, "--source"},
		{[]string{"replays", "create", "--source", ""}, "dead_letters events"},
		{[]string{"replays", "create", "--source=d"}, "--source=dead_letters"},
		{[]string{"replays", "create", "--all", "--sou"}, "--source"},
		{[]string{"replays", "create", "--source", "events", "--no-such", "--rate"}, "--rate-per-minute"},
		{[]string{"deliveries", "list", "--state", "dea"}, "dead_lettered"},
		{[]string{"completion", ""}, "bash fish zsh"},
		{[]string{"completion", "bash", ""}, ""},
		{[]string{"send", "order.paid", ""}, ""},
		{[]string{"__"}, ""},
	} {
		code, stdout, stderr := run(t, nil, append([]string{"__complete", "--"}, c.words...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, c.want, strings.Join(strings.Fields(stdout), " "), "%q", c.words)
	}
	_, all, _ := run(t, nil, "__complete", "--", "")
	for _, command := range []string{"serve", "send", "completion", "help", "version"} {
		require.Contains(t, strings.Fields(all), command)
	}
}

// The scripts work in the installed shells: bash completes a command line, the others parse
// their script without an error.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, script, stderr := run(t, nil, "completion", shell)
		require.Zero(t, code, stderr)
		file := filepath.Join(dir, shell)
		require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not on this machine: its script was not read by it", shell)
			continue
		}
		out, err := exec.CommandContext(t.Context(), program, "-n", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
	}
	bash := programtest.Find(t, "bash", "bash")
	// The stub responds like the binary and records its arguments.
	stub := filepath.Join(dir, "everpost")
	script := "#!" + bash + "\nprintf '%s|' \"$@\" >" + dir + "/asked\nprintf 'pause\\nresume\\n'\n"
	require.NoError(t, os.WriteFile(stub, []byte(script), 0o700))
	line := `source "$1/bash"; COMP_WORDS=("$1/everpost" endpoints ""); COMP_CWORD=2; _everpost "$1/everpost"; echo "${COMPREPLY[*]}"`
	out, err := exec.CommandContext(t.Context(), bash, "-c", line, "-", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "pause resume\n", strings.ReplaceAll(string(out), "\n", " ")[:len("pause resume")]+"\n")
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	require.Equal(t, "__complete|--|endpoints||", string(asked))
}

// 'help', '--version' and misspelt commands.
func TestHelpAndSuggestions(t *testing.T) {
	t.Parallel()
	code, version, _ := run(t, nil, "--version")
	require.Zero(t, code)
	require.Equal(t, "everpost 1.2.3\n", version)
	_, want, _ := run(t, nil, "endpoints", "create", "--help")
	code, help, _ := run(t, nil, "help", "endpoints", "create")
	require.Zero(t, code)
	require.Equal(t, want, help)
	code, help, _ = run(t, nil, "help")
	require.Zero(t, code)
	require.Contains(t, help, "completion")
	require.NotContains(t, help, "__complete")
	for args, want := range map[string]string{
		"endpoints creat":             "no such command: endpoints creat; did you mean 'create'? 'everpost --help' lists them",
		"help endponts":               "no such command: endponts; did you mean 'endpoints'?",
		"send a.b --wiat":             `unknown flag --wiat, did you mean "--wait"?`,
		"keys create --scope=al":      `--scope must be one of "ingest","admin" but got "al"`,
		"deliveries list --state=foo": `--state must be one of "pending","retrying","held","delivered","dead_lettered","cancelled","discarded" but got "foo"`,
		"deliveries get xyz":          `"xyz" is not an id of the form dlv_…`,
		"audit --since=foo":           `--since: "foo" is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m`,
		"completion fsh":              `must be one of "bash","zsh","fish" but got "fsh"`,
		"serve --retention=tomorrow":  `"tomorrow"`,
		"serve --extra-ports=0":       `"0" is not a port between 1 and 65535, nor 'any'`,
		"serve --allowed-cidrs=10.0":  `"10.0"`,
	} {
		code, stdout, stderr := run(t, nil, strings.Fields(args)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout, args)
		require.Contains(t, stderr, want, args)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// The binary without a private PostgreSQL requires the database URL; the other one finds
// the database by the data directory.
func TestKeysDatabase(t *testing.T) {
	t.Parallel()
	_, help, _ := run(t, nil, "keys", "list", "--help")
	require.NotContains(t, help, "data-dir", "this binary has none")
	require.NotContains(t, help, "Without one")
	require.Contains(t, help, "EVERPOST_DATABASE_URL")
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var asked string
	p := cli.Process{Stdout: new(strings.Builder), Stderr: file, FindDatabase: func(dir string) (string, error) {
		asked = dir
		return "", errors.New("no PostgreSQL runs in " + dir)
	}}
	require.Equal(t, 2, cli.Main(p, []string{"keys", "list", "--data-dir=/nowhere"}, &cli.Commands{}))
	require.Equal(t, "/nowhere", asked)
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "no PostgreSQL runs in /nowhere; start it with 'make run', name its data directory with --data-dir")
}
