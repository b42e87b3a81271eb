package e2e_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireOneLine checks that a start failed with one line for people, which names
// what is wrong. What it logged as JSON meanwhile is not counted.
func requireOneLine(t *testing.T, f finished, contains ...string) {
	t.Helper()
	requireFailure(t, f, 1, contains...)
}

// requireUsage is requireOneLine where a flag or a setting is what is wrong.
func requireUsage(t *testing.T, f finished, contains ...string) {
	t.Helper()
	requireFailure(t, f, 2, contains...)
}

func requireFailure(t *testing.T, f finished, code int, contains ...string) {
	t.Helper()
	require.Equal(t, code, f.Code, f.Stderr)
	require.NotContains(t, f.Stdout, "ready ")
	var lines []string
	for line := range strings.Lines(f.Stderr) {
		if !strings.HasPrefix(line, "{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	require.Len(t, lines, 1, f.Stderr)
	for _, part := range contains {
		require.Contains(t, lines[0], part)
	}
}

func TestUnusableCommandLine(t *testing.T) {
	t.Parallel()
	data := settings{"EVERPOST_DATA_DIR": filepath.Join(t.TempDir(), "data")}
	for _, c := range []struct {
		name  string
		env   settings
		args  []string
		names string
	}{
		{"unknown flag", nil, []string{"standalone", "--no-such-flag"}, "--no-such-flag"},
		{"unknown command", nil, []string{"no-such-command"}, "no-such-command"},
		{"port that is none", settings{"EVERPOST_LISTEN": "127.0.0.1:http"}, []string{"standalone"}, "EVERPOST_LISTEN"},
		{"admin port out of range", nil, []string{"standalone", "--admin-listen", "127.0.0.1:65536"}, "EVERPOST_ADMIN_LISTEN"},
		{"range that is none", settings{"EVERPOST_ALLOWED_CIDRS": "127.0.0.0/33"}, []string{"standalone"}, "127.0.0.0/33"},
		{"range of every address", settings{"EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8,0.0.0.0/0"}, []string{"standalone"}, `EVERPOST_ALLOWED_CIDRS: "0.0.0.0/0"`},
		{"denied range that is none", settings{"EVERPOST_DENIED_CIDRS": "10.0.0.0"}, []string{"standalone"}, "10.0.0.0"},
		{"no file of certificates", settings{"EVERPOST_CA_FILE": "/no/such/ca.pem"}, []string{"standalone"}, "open /no/such/ca.pem: no such file"},
		{"file without certificates", settings{"EVERPOST_CA_FILE": "/dev/null"}, []string{"standalone"}, "EVERPOST_CA_FILE: /dev/null holds no certificate"},
		{"port list that is none", settings{"EVERPOST_EXTRA_PORTS": "8443,every"}, []string{"standalone"}, "every"},
		{"retry policy that is none", settings{"EVERPOST_RETRY_POLICY": `{"preset":"fast","base":"0s"}`}, []string{"standalone"}, "base: must be"},
		{"weak operator key", settings{"EVERPOST_OPERATOR_KEY": "short"}, []string{"standalone"}, "EVERPOST_OPERATOR_KEY"},
		{"serve without a database", nil, []string{"serve"}, "EVERPOST_DATABASE_URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := runToEnd(contextFor(t, patience), data.With(c.env), c.args...)
			require.NoError(t, err)
			requireUsage(t, f, c.names)
			require.NoDirExists(t, data["EVERPOST_DATA_DIR"], "nothing was started")
		})
	}
}

func TestSecondStartWhileRunning(t *testing.T) {
	t.Parallel()
	needsStandalone(t, itsOwn)
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	f, err := runToEnd(contextFor(t, patience), b.in.env.With(settings{
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_ADMIN_LISTEN": "127.0.0.1:0",
		"EVERPOST_TEMPORAL_LISTEN": "127.0.0.1:0", "EVERPOST_UI_LISTEN": "127.0.0.1:0",
	}), "standalone")
	require.NoError(t, err)
	requireOneLine(t, f, b.in.data, "in use")
	_, d := b.postOne("order.paid", `{}`) // the first is not disturbed
	b.waitState(d.ID, "delivered")
	b.in.requireOneServer(t)
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	in := ownHome(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	// One after the other: all use the same data directory.
	for _, setting := range []string{"EVERPOST_LISTEN", "EVERPOST_ADMIN_LISTEN", "EVERPOST_TEMPORAL_LISTEN", "EVERPOST_UI_LISTEN"} {
		f, err := runToEnd(contextFor(t, startPatience), in.env.With(settings{setting: taken.Addr().String()}), "standalone")
		require.NoError(t, err)
		requireOneLine(t, f, setting, taken.Addr().String())
		in.requireNoServer(t)
	}
	require.NoError(t, in.start(contextFor(t, startPatience)), "no failed start left anything in the way")
}

func TestDemonstration(t *testing.T) {
	t.Parallel()
	in := ownHome(t)
	delete(in.env, "EVERPOST_DEMO")
	delete(in.env, "EVERPOST_ALLOW_HTTP") // the demonstration has its own permission
	delete(in.env, "EVERPOST_ALLOWED_CIDRS")
	delete(in.env, "EVERPOST_EXTRA_PORTS")
	require.NoError(t, in.start(contextFor(t, startPatience)))
	ctx := contextFor(t, patience)
	eventually(ctx, t, func() string {
		if said := in.process.Said(); !strings.Contains(strings.Join(said, "\n"), "curl ") {
			return "no curl line in " + strings.Join(said, "\n")
		}
		return ""
	})
	said := strings.Join(in.process.Said(), "\n")
	require.Regexp(t, `(?ms)^ready .*accepted +evt_\S+.*attempt 1 +503.*Retry-After: 1.*signature verified.*attempt 2 +200.*signature verified`, said)
	first := regexp.MustCompile(`([0-9.]+) s +attempt 1 `).FindStringSubmatch(said)
	require.NotNil(t, first, said)
	took, err := strconv.ParseFloat(first[1], 64)
	require.NoError(t, err)
	require.Less(t, took, atOnceIs.Seconds(), "the first event of a first start is delivered at once, too")
	require.Contains(t, said, in.addr["ui"]+"/namespaces/default/workflows/delivery%2Fevt_")
	match := regexp.MustCompile(`curl -sS (http\S+) -H "Authorization: Bearer \$\(cat (\S+)\)" .*-d '(.*)'`).FindStringSubmatch(said)
	require.NotNil(t, match, said)
	require.Equal(t, in.addr["key_file"], match[2])
	info, err := os.Stat(match[2])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	// What the line sends is delivered, too.
	path, ok := strings.CutPrefix(match[1], in.addr["api"])
	require.True(t, ok)
	var next event
	got, err := in.client().call(ctx, http.MethodPost, path, match[3])
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, got.status)
	require.NoError(t, got.into(&next))
	require.Len(t, next.Deliveries, 1)
	demo := &bundle{t: t, in: in, client: in.client(), tenant: "demo"}
	demo.waitState(next.Deliveries[0].ID, "delivered")
	// Loopback stays closed to everyone else, and to other ports.
	got, err = in.client().call(ctx, http.MethodPost, "/v1/tenants/demo/endpoints", fieldsOf{"url": "http://127.0.0.1:1/"})
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, got.status)

	require.NoError(t, in.stop())
	in.requireNoServer(t)
	in.restart(t)
	got, err = in.client().call(ctx, http.MethodPost, path, match[3])
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, got.status)
	require.NoError(t, got.into(&next))
	demo.client = in.client()
	demo.waitState(next.Deliveries[0].ID, "delivered") // its receiver is back on the same address
	require.Len(t, in.process.Said(), 2, "the second start shows the console's link and the ready line, and no demonstration")
}

func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	r.Hold()
	const count = 5
	var ids []string
	for range count {
		_, d := b.postOne("order.paid", `{}`)
		ids = append(ids, d.ID)
	}
	require.NoError(t, r.WaitHeld(contextFor(t, patience), count))
	stopped := make(chan error, 1)
	go func() { stopped <- in.stop() }()
	eventually(contextFor(t, patience), t, func() string { // no new work: the API is shut first
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(in.addr["api"], "http://"), time.Second)
		if err != nil {
			return ""
		}
		_ = conn.Close()
		return "the API still listens"
	})
	require.True(t, in.process.Running(), "it waits for the requests under way")
	r.Release()
	require.NoError(t, <-stopped)
	in.requireNoServer(t)
	require.Equal(t, count, r.Count())

	in.restart(t)
	b.client = in.client()
	for _, id := range ids {
		d := b.waitState(id, "delivered")
		require.Equal(t, 1, d.Attempts)
		b.awaitWorkflow(contextFor(t, patience), in.temporal(t), d.WorkflowID)
	}
	require.Equal(t, count, r.Count(), "their answers were recorded: nothing is sent again")
}
