package cli_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/webhook"
)

// An error of the API is one line that contains the remedy.
func TestAPIErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := webhook.NewKeyID()
	ingest, sum := api.NewKey(id)
	require.NoError(t, b.store.Keys.CreateKey(t.Context(), webhook.Actor{Name: "test"},
		webhook.Key{ID: id, TenantID: "acme", Scope: webhook.ScopeIngest, SHA256: sum, CreatedAt: time.Now()}))
	dir := t.TempDir()
	wrong := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(wrong, "operator.key"), []byte("of yesterday\n"), 0o600))
	listensAt(t, wrong, b.url)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{
			[]string{"--tenant=acme", "--data-dir=" + dir}, 4,
			"an API key is missing (there is no " + dir + "/operator.key; --data-dir or $EVERPOST_DATA_DIR says where standalone's data is); give one with",
		},
		{
			[]string{"--tenant=acme", "--key=canary"}, 4,
			"the given key is not an API key: one is evk_ and 85 characters, as \"everpost keys create\" prints it; give one with --key or $EVERPOST_KEY",
		},
		{[]string{"--tenant=acme", "--data-dir=" + wrong}, 4, "\"everpost keys create\" prints it (it is from " + wrong + "/operator.key); give one with"},
		{
			[]string{"--tenant=acme", "--key=" + ingest}, 4,
			"this needs a key with the scope admin; give one with --key or $EVERPOST_KEY, or use an operator key",
		},
		{
			[]string{"--tenant=other", "--key=" + ingest}, 3,
			"no such endpoint of tenant other; check the id, and --tenant: what is another tenant's is not shown",
		},
		{[]string{"--tenant=acme", "--key=a\nb"}, 2, "--key: has a line break inside: it must be one line, and nothing else"},
		{[]string{"--key=canary"}, 2, "--tenant: is required, here or as $EVERPOST_TENANT (the demonstration's is demo)"},
	} {
		r := call{args: append([]string{"endpoints", "get", webhook.NewEndpointID().String(), "--url=" + b.url}, c.args...)}.run(t)
		require.Equal(t, c.code, r.code, c.args)
		require.Empty(t, r.stdout)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		require.Contains(t, r.stderr, c.want)
		require.NotContains(t, r.stderr, "canary")
		require.NotContains(t, r.stderr, ingest)
	}
	r := call{args: []string{"events", "list", "--url=" + b.url + "/", "--tenant=other", "--key=" + operatorKey}}.run(t)
	require.Contains(t, r.stderr, "everpost: no such tenant: other; check --tenant, and that the key is this tenant's or an operator's")
	r = call{args: []string{"events", "list", "--url=" + b.url + "/elsewhere", "--tenant=acme", "--key=" + operatorKey}}.run(t)
	require.Contains(t, r.stderr, "no such route (GET /elsewhere/v1/tenants/acme/events); is that Everpost older than this command (1.2.3)?")
}

// The operator's key in the data directory is used when no other key is given.
func TestOperatorKeyOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "operator.key")
	require.NoError(t, os.WriteFile(file, []byte(operatorKey+"\n"), 0o600))
	list := []string{"events", "list", "--url=" + b.url, "--tenant=acme", "--data-dir=" + dir}
	listensAt(t, dir, b.url)
	require.Equal(t, result{stderr: "no events\n"}, call{args: list}.run(t), "silently")
	require.Equal(t, 4, call{args: append(list, "--key=another")}.run(t).code, "a key that is given goes before it")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	r := call{args: list}.run(t)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "everpost: operator key: read "+file)
}

// Without an address, the one of the installation that runs in the data directory is called, whatever its port.
func TestInstallationOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "operator.key"), []byte(operatorKey+"\n"), 0o600))
	list := []string{"events", "list", "--tenant=acme", "--data-dir=" + dir}
	listensAt(t, dir, b.url)
	require.Equal(t, result{stderr: "no events\n"}, call{args: list}.run(t))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	listensAt(t, dir, "http://0.0.0.0:"+port)
	require.Equal(t, result{stderr: "no events\n"}, call{args: list}.run(t), "all addresses of the machine")
	listensAt(t, dir, "http://nowhere")
	r := call{args: list}.run(t)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, filepath.Join(dir, "api.address"))
}

// listensAt writes what standalone writes into its data directory.
func listensAt(t *testing.T, dir, url string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "api.address"), []byte(strings.TrimPrefix(url, "http://")+"\n"), 0o600))
}

// Responses that do not come from Everpost, or that are malformed.
func TestUnexpectedResponses(t *testing.T) {
	t.Parallel()
	var elsewhere int
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer foreign.Close()
	problem := func(detail string) string {
		return `{"type":"https://everpost.dev/errors/x","title":"X","status":500,"detail":"` + detail + `","request_id":"REQ"}`
	}
	for _, c := range []struct {
		code   int
		status int
		media  string
		header string
		body   string
		want   string
	}{
		{5, 503, "application/problem+json", "Retry-After: 7", problem("busy"), "busy; try again in 7 s"},
		{5, 429, "application/problem+json; charset=utf-8", "Retry-After: 1", problem("too many"), "too many; try again in 1 s"},
		{5, 503, "application/problem+json", "", problem("busy"), "busy\n"},
		{5, 500, "application/problem+json", "", problem("our side"), "our side (request REQ)"},
		{4, 405, "application/problem+json", "", problem("this path does not support GET"), "this path does not support GET; is that Everpost older"},
		{4, 422, "application/problem+json", "", problem(`red \u001b[31m and\nmore`), `red \x1b[31m and\nmore`},
		{5, 502, "text/html", "", "<html>canary", " answered 502 Bad Gateway, and not as Everpost does: is --url the address of its API?"},
		{5, 502, "application/problem+json", "", "{", " answered 502 Bad Gateway, and not as Everpost does"},
		{4, 307, "text/html", "Location: " + foreign.URL, "", " answered 307 Temporary Redirect, and not as Everpost does"},
		{1, 200, "text/html", "", "<html>canary", "the answer is not what Everpost's API gives: is --url right?"},
		{1, 200, "application/json", "", `{"data":[17]}`, "the answer is not what Everpost's API gives: is --url right?"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.Header().Set("Content-Type", c.media)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		r := call{args: at(server.URL, "events", "list", "--external-id=canary")}.run(t)
		server.Close()
		require.Equal(t, c.code, r.code, c.want)
		require.Contains(t, r.stderr, c.want)
		require.NotContains(t, r.stderr, "canary")
		require.Equal(t, 1, strings.Count(r.stderr, "\n"))
	}
	require.Zero(t, elsewhere, "a redirect is not followed: the key is for one address")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	address := "http://" + closedPort(t)
	for _, command := range []string{"events list --external-id=canary", "deliveries retry dlv_06f4q2m0hhf5dd6cs7m9k2q8xw", "replays list"} {
		r := call{args: at(address, strings.Fields(command)...)}.run(t)
		require.Equal(t, 5, r.code)
		require.Contains(t, r.stderr, "is Everpost running at "+address+"? Nothing listens there. "+
			"Start it with 'make run', or give its address with --url or $EVERPOST_URL\n")
		require.NotContains(t, r.stderr, "canary")
	}
	for _, bad := range []string{"127.0.0.1:8080", "ftp://x", "http://", "http://u:canary@x", "http://x/?canary", "http://x/#canary", "http://x:y"} {
		r := call{args: at(bad, "events", "list")}.run(t)
		require.Contains(t, r.stderr, "everpost: --url: ", bad)
		require.Contains(t, r.stderr, "must be an address such as http://127.0.0.1:8080", bad)
		require.NotContains(t, r.stderr, "canary")
	}
}

// The help contains the variables of the commands, no command reports them as unknown, and
// every command that calls the API has the same ones.
func TestHelpOfTheClient(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"send", "events list", "events get", "events payload", "events attempts", "events cancel", "endpoints attempts",
		"deliveries list", "deliveries get", "deliveries attempts", "deliveries cancel",
		"deliveries retry", "deliveries reschedule", "deliveries replay", "dead-letters list", "dead-letters replay", "dead-letters discard",
		"endpoints list", "endpoints get", "endpoints create", "endpoints update", "endpoints delete", "endpoints secret", "endpoints pause",
		"endpoints resume", "endpoints release", "endpoints close-circuit", "endpoints health", "endpoints test",
		"replays create", "replays list", "replays get", "replays pause", "replays resume",
		"replays cancel", "replays set-rate",
	} {
		r := call{args: append(strings.Fields(command), "--help")}.run(t)
		require.Zero(t, r.code, command)
		words := strings.Join(strings.Fields(r.stdout), " ")
		for _, want := range []string{
			"that runs in the data directory, or else http://127.0.0.1:8080 ($EVERPOST_URL).",
			"on this machine, the operator key in the data directory is used ($EVERPOST_KEY).",
			"where operator.key and the addresses are (default .everpost, $EVERPOST_DATA_DIR).", "($EVERPOST_TENANT).", "--json",
		} {
			require.Contains(t, words, want, command)
		}
	}
	r := call{args: []string{"listen", "--help"}}.run(t)
	require.Contains(t, r.stdout, "$EVERPOST_LISTEN_SECRET")
	p := cli.Process{Stderr: os.Stderr, Environ: []string{"EVERPOST_URL=x", "EVERPOST_KEY=x", "EVERPOST_TENANT=x", "EVERPOST_LISTEN_SECRET=x"}}
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	p.Stderr = file
	p.Logger("warn")
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Empty(t, string(text))
}
