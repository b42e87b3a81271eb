package e2e_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// previousRelease is the file with the commit of the release from which installations are upgraded: the first line. Until there is a
// release, it is the commit of the first schema whose migrations are not edited any more.
const previousRelease = "testdata/previous-release"

// buildPrevious makes the standalone binary of the previous release from the history of the repository.
// EVERPOST_TEST_PREVIOUS_STANDALONE names one that is made already.
func buildPrevious(t *testing.T, into string) string {
	t.Helper()
	if given := os.Getenv("EVERPOST_TEST_PREVIOUS_STANDALONE"); given != "" {
		return given
	}
	text, err := os.ReadFile(previousRelease)
	require.NoError(t, err)
	commit, _, _ := strings.Cut(string(text), "\n")
	run := func(name string, args ...string) []byte {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		var complaint bytes.Buffer
		command.Stderr = &complaint
		out, err := command.Output()
		require.NoError(t, err, "%s: %s", name, complaint.String())
		return out
	}
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		why := fmt.Sprintf("the history of this repository does not reach back to %s, the previous release: fetch it (actions/checkout: fetch-depth: 0): %s",
			commit, out)
		if os.Getenv("CI") == "" {
			t.Skip(why)
		}
		require.Fail(t, why)
	}
	archive, source, out := filepath.Join(into, "previous.tar"), filepath.Join(into, "previous"), filepath.Join(into, "everpost-previous")
	require.NoError(t, os.Mkdir(source, 0o755))
	root := strings.TrimSpace(string(run("git", "rev-parse", "--show-toplevel")))
	run("git", "-C", root, "archive", "--output="+archive, commit)
	run("tar", "-xf", archive, "-C", source)
	run("go", "build", "-C", filepath.Join(source, "standalone"), "-buildvcs=false", "-o", out, ".")
	return out
}

// An installation of the previous release with deliveries in every state, a running replay and an open circuit goes on under this build, on the
// same data.
func TestUpgradeFromThePreviousRelease(t *testing.T) {
	t.Parallel()
	in := ownHome(t)
	in.env = in.env.With(settings{"EVERPOST_RECONCILE_EVERY": "10s"})
	in.program = buildPrevious(t, in.home)
	require.NoError(t, in.start(contextFor(t, startPatience)))
	// The contract of today does not bind the previous release.
	before := in.client()
	before.http = &http.Client{Timeout: patience}
	b := newBundle(t, in, before, "acme")
	r := newReceiver(t)
	u := &upgraded{bundle: b, r: r, of: map[string]delivery{}}
	u.fill()
	begun := u.replayOf.Released
	require.NoError(t, in.stop())
	before.http.CloseIdleConnections()

	in.program = ""
	in.restart(t)
	b.client = in.client()
	u.goOn(begun)
	found, _ := doctor(t, in.env.With(settings{"EVERPOST_TEMPORAL_LISTEN": in.addr["temporal"]}))
	for name, c := range found {
		require.NotEqual(t, "problem", c.Verdict, "%s: %s", name, c.Detail)
	}
}

// upgraded is what an installation has when it is upgraded.
type upgraded struct {
	*bundle

	r        *receiver
	of       map[string]delivery // by their state, or by what becomes of them
	paused   endpoint
	broken   endpoint // with an open circuit
	replayOf replay
}

// only makes an endpoint that gets the events of one type, which is also its path.
func (u *upgraded) only(kind string, further fieldsOf, script ...receivertest.Step) endpoint {
	u.t.Helper()
	u.r.Script("/"+kind, script...)
	fields := fieldsOf{"event_types": []string{kind}}
	maps.Copy(fields, further)
	return u.endpoint(u.r, "/"+kind, fields)
}

// fill makes deliveries in every state, starts a replay and opens a circuit.
func (u *upgraded) fill() {
	u.t.Helper()
	status := func(code int) receivertest.Step { return receivertest.Step{Status: code} }
	one := func(name, state string, further ...string) {
		u.t.Helper()
		_, d := u.postOne(name, `{}`, further...)
		u.of[name] = u.waitState(d.ID, cmp.Or(state, d.State))
	}
	u.only("delivered", nil)
	one("delivered", "delivered")
	u.only("dead", nil, status(http.StatusBadRequest))
	one("dead", "dead_lettered")
	u.only("discarded", nil, status(http.StatusBadRequest))
	one("discarded", "dead_lettered")
	u.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+u.of["discarded"].ID+"/discard", fieldsOf{"reason": "test"}, nil)
	u.waitState(u.of["discarded"].ID, "discarded")
	u.only("cancelled", fieldsOf{"retry_policy": patiently()}, status(http.StatusServiceUnavailable))
	one("cancelled", "retrying")
	u.command(http.StatusAccepted, u.of["cancelled"].ID, "cancel", nil)
	u.waitState(u.of["cancelled"].ID, "cancelled")

	// A circuit that is open for longer than the test.
	u.broken = u.only("circuit", fieldsOf{"retry_policy": patiently(), "circuit_breaker": fieldsOf{"min_requests": 2, "cooldown": "5m"}},
		status(http.StatusServiceUnavailable), status(http.StatusServiceUnavailable))
	one("circuit", "retrying")
	one("circuit", "retrying")
	u.waitCircuit(u.broken, "open")
	_, d := u.postOne("circuit", `{}`)
	u.of["behind the circuit"] = d

	u.paused = u.only("held", nil)
	u.ask(http.StatusOK, http.MethodPost, "/endpoints/"+u.paused.ID+"/pause", nil, nil)
	one("held", "held")

	ep := u.only("replayed", unguarded())
	u.r.Script("/replayed", status(400), status(400), status(400), status(400), status(400), status(400))
	for range 6 {
		one("replayed", "dead_lettered")
	}
	u.replayOf = u.makeReplay(fieldsOf{"source": "dead_letters", "endpoint_id": ep.ID, "rate_per_minute": 12})

	u.replayOf = u.waitReplay(contextFor(u.t, patience), u.replayOf.ID, "under way", func(r replay) bool { return r.Released >= 1 })

	u.only("asked", fieldsOf{"retry_policy": patiently()}, status(http.StatusServiceUnavailable))
	one("asked", "retrying")
	slowly := fieldsOf{"strategy": "fixed", "base": "15s", "jitter": "none", "max_attempts": 3}
	u.only("retrying", fieldsOf{"retry_policy": slowly}, status(http.StatusServiceUnavailable))
	one("retrying", "retrying")
	u.only("scheduled", nil)
	one("scheduled", "", "deliver_at", strconv.Quote(at(time.Now().Add(15*time.Second))))
}

// goOn requires that everything goes on under the new build.
func (u *upgraded) goOn(released int) {
	u.t.Helper()
	for _, state := range []string{"delivered", "discarded", "cancelled"} {
		require.Equal(u.t, state, u.delivery(u.of[state].ID).State)
	}
	require.Equal(u.t, "dead_lettered", u.delivery(u.of["dead"].ID).State)
	require.Equal(u.t, "held", u.delivery(u.of["held"].ID).State)

	u.command(http.StatusAccepted, u.of["asked"].ID, "retry", nil)
	u.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+u.of["dead"].ID+"/replay", nil, nil)
	u.ask(http.StatusOK, http.MethodPost, "/endpoints/"+u.paused.ID+"/resume", nil, nil)
	// The workflows of the previous build do not replay: they count as stuck, and what they have goes on from the store when it is overdue.
	for _, name := range []string{"asked", "dead", "held", "retrying", "scheduled"} {
		u.waitStateIn(contextFor(u.t, 2*longRecovery), u.of[name].ID, "delivered")
	}
	u.command(http.StatusAccepted, u.of["behind the circuit"].ID, "retry", nil)
	u.waitStateIn(contextFor(u.t, 2*longRecovery), u.of["behind the circuit"].ID, "delivered")
	u.waitCircuit(u.broken, "closed")

	done := u.waitReplay(contextFor(u.t, patience), u.replayOf.ID, "completed", func(r replay) bool { return r.State == "completed" })
	require.Equal(u.t, []int{6, 6, 6, 0}, []int{done.Total, done.Released, done.Delivered, done.Failed})
	require.Less(u.t, released, 6, "it was under way when the old build ended")
}
