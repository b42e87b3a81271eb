package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/receivertest"
)

// copied is a delivery of which the database is copied. Each has an endpoint of its own.
type copied struct {
	name      string
	state     string // in the copy
	unstarted bool   // Temporal does not know it
	first     int    // its receiver's answer before the copy, if it gave one that is no 200
	later     string // the command that it gets after the copy
	then      int    // its receiver's answer after the copy, likewise; 200 from then on
	ends      string // the state that it has then, if it is not that of the copy
	lost      int    // attempts after the copy, which the restored database does not know
}

// copies are the ways in which a delivery can stand when the database is copied, and go on after that.
var copies = []copied{
	{name: "delivered", state: "delivered"},
	{name: "sending", state: "pending", ends: "delivered", lost: 1},
	{name: "outbox", state: "pending", unstarted: true, ends: "delivered", lost: 1},
	{name: "outbox-refused", state: "pending", unstarted: true, then: 400, ends: "dead_lettered", lost: 1},
	{name: "retrying", state: "retrying", first: 503},
	{name: "retried", state: "retrying", first: 503, later: "retry", ends: "delivered", lost: 1},
	{name: "retried-refused", state: "retrying", first: 503, later: "retry", then: 400, ends: "dead_lettered", lost: 1},
	{name: "cancelled", state: "retrying", first: 503, later: "cancel", ends: "cancelled"},
	{name: "held", state: "held"},
	{name: "resumed", state: "held", later: "resume", ends: "delivered", lost: 1},
	{name: "resumed-refused", state: "held", later: "resume", then: 400, ends: "dead_lettered", lost: 1},
	{name: "dead", state: "dead_lettered", first: 400},
	{name: "replayed", state: "dead_lettered", first: 400, later: "replay", ends: "delivered", lost: 1},
	{name: "replayed-refused", state: "dead_lettered", first: 400, later: "replay", then: 400, ends: "dead_lettered", lost: 1},
}

// byPerson are the commands that a person gives to deliveries that Everpost leaves as they are, by state.
var byPerson = map[string]string{"held": "resume", "dead_lettered": "replay"}

// disaster is a cluster that is about to lose something, with one delivery of each of the copies.
type disaster struct {
	*bundle

	address    string // of Temporal
	line       *proxy // to it; cut since before the deliveries of the outbox
	namespace  string
	receiver   *receiver
	slow       *receiver // does not answer until it is released
	deliveries map[string]delivery
}

func newDisaster(t *testing.T, name string) *disaster {
	t.Helper()
	address, namespace := sharedTemporal(t), name+"-"+filepath.Base(t.TempDir())+time.Now().Format("150405")
	makeNamespace(contextFor(t, patience), t, address, namespace)
	line := newProxy(t, address)
	in := cluster(t, line.address, namespace, settings{"EVERPOST_RECONCILE_EVERY": "1s"})
	d := &disaster{
		bundle:  newBundle(t, in, in.client(), "acme"),
		address: address, line: line, namespace: namespace,
		receiver: newReceiver(t), slow: newReceiver(t), deliveries: map[string]delivery{},
	}
	d.slow.Hold()
	for _, c := range copies {
		if !c.unstarted {
			d.begin(c)
		}
	}
	require.NoError(t, d.slow.WaitHeld(contextFor(t, patience), 1))
	eventually(contextFor(t, patience), t, func() string {
		if d.delivery(d.deliveries["sending"].ID).WorkflowID == "" {
			return "the request under way is not claimed"
		}
		return ""
	})
	line.cut()
	in.waitHealth(t, "degraded") // from now on no first request is sent
	for _, c := range copies {
		if c.unstarted {
			d.begin(c)
		}
	}
	return d
}

func (d *disaster) receiverOf(name string) *receiver {
	if name == "sending" {
		return d.slow
	}
	return d.receiver
}

// script has the next request of a delivery answered with the status, unless that is 0.
func (d *disaster) script(name string, status int) {
	if status != 0 {
		d.receiverOf(name).Script("/"+name, receivertest.Step{Status: status})
	}
}

// begin makes a delivery with its endpoint, and waits until it stands as it is to be copied.
func (d *disaster) begin(c copied) {
	d.t.Helper()
	d.script(c.name, c.first)
	to := d.endpoint(d.receiverOf(c.name), "/"+c.name, fieldsOf{"event_types": []string{c.name}, "retry_policy": patiently(), "timeout": "20s"})
	if c.state == "held" {
		d.ask(http.StatusOK, http.MethodPost, "/endpoints/"+to.ID+"/pause", nil, nil)
	}
	d.deliveries[c.name] = d.accept(c.name, c.name, c.state)
}

// accept posts an event under an external id, and waits for the state of its delivery.
func (d *disaster) accept(kind, externalID, state string) delivery {
	d.t.Helper()
	_, made := d.postOne(kind, `{}`, "external_id", fmt.Sprintf("%q", externalID))
	return d.waitState(made.ID, state)
}

// goOn gives the commands that come after the copy, and waits for what becomes of the deliveries.
func (d *disaster) goOn() {
	d.t.Helper()
	for _, c := range d.copies() {
		if c.later != "" {
			d.command(c.name, c.later)
		}
	}
	ctx := contextFor(d.t, longRecovery)
	for _, c := range d.copies() {
		if c.ends != "" {
			d.waitStateIn(ctx, d.deliveries[c.name].ID, c.ends)
		}
	}
}

// copies are those of which there is a delivery.
func (d *disaster) copies() []copied {
	return slices.DeleteFunc(slices.Clone(copies), func(c copied) bool { return d.deliveries[c.name].ID == "" })
}

func (d *disaster) url(database string) string {
	d.t.Helper()
	at, err := url.Parse(d.in.env["EVERPOST_DATABASE_URL"])
	require.NoError(d.t, err)
	at.Path = "/" + database
	return at.String()
}

// exec executes statements in a database.
func (d *disaster) exec(database string, statements ...string) {
	d.t.Helper()
	ctx := contextFor(d.t, patience)
	conn, err := pgx.Connect(ctx, d.url(database))
	require.NoError(d.t, err)
	for _, statement := range statements {
		_, err := conn.Exec(ctx, statement)
		require.NoError(d.t, err, statement)
	}
	require.NoError(d.t, conn.Close(ctx))
}

// command gives a delivery a command. To resume is one to its endpoint.
func (d *disaster) command(name, command string) {
	d.t.Helper()
	if command == "resume" {
		d.ask(http.StatusOK, http.MethodPost, "/endpoints/"+d.deliveries[name].EndpointID+"/resume", nil, nil)
		return
	}
	d.bundle.command(http.StatusAccepted, d.deliveries[name].ID, command, nil)
}

// run runs a program of PostgreSQL.
func (d *disaster) run(program string, args ...string) {
	d.t.Helper()
	said, err := exec.CommandContext(contextFor(d.t, patience), program, args...).CombinedOutput()
	require.NoError(d.t, err, "%s: %s", program, said)
}

// backUp copies the database while everything runs.
func (d *disaster) backUp() (file string) {
	d.t.Helper()
	file = filepath.Join(d.t.TempDir(), "everpost.dump")
	d.run("pg_dump", "--format=custom", "--file="+file, "--dbname="+d.url(localpg.Database))
	return file
}

// restore replaces the database by its copy.
func (d *disaster) restore(file string) {
	d.t.Helper()
	d.exec("postgres", "drop database everpost", "create database everpost")
	d.run("pg_restore", "--exit-on-error", "--dbname="+d.url(localpg.Database), file)
}

// grow lets the database grow older by two hours: nobody restores a copy of a minute ago, and what waits would be due.
func (d *disaster) grow() {
	d.t.Helper()
	d.exec(localpg.Database,
		`update deliveries set due_at = due_at - interval '2 hours', owner_until = owner_until - interval '2 hours'`,
		`update outbox set relay_at = relay_at - interval '2 hours'`)
}

// serve starts the process again.
func (d *disaster) serve() {
	d.t.Helper()
	d.in.http.CloseIdleConnections()
	process, err := launch(d.in.env, d.in.log, "serve")
	require.NoError(d.t, err)
	d.in.process = process
	d.in.addr, err = process.Ready(contextFor(d.t, startPatience))
	require.NoError(d.t, err)
	d.client = d.in.client()
}

// giveCommands gives the deliveries the commands for the states that they stand in.
func (d *disaster) giveCommands(commands map[string]string, stands func(*copied) string) {
	d.t.Helper()
	for _, c := range d.copies() {
		if command := commands[stands(&c)]; command != "" {
			require.Equal(d.t, stands(&c), d.delivery(d.deliveries[c.name].ID).State, c.name)
			d.command(c.name, command)
		}
	}
}

// requireAllDelivered waits until all are delivered. Receiver and database must agree, but for the requests that are lost to
// the database.
func (d *disaster) requireAllDelivered(lost func(*copied) int) {
	d.t.Helper()
	ctx := contextFor(d.t, longRecovery)
	for _, c := range copies {
		now := d.waitStateIn(ctx, d.deliveries[c.name].ID, "delivered")
		want := 1 // attempts on record
		if c.first != 0 {
			want++
		}
		attempts := d.attempts(now.ID)
		require.Len(d.t, attempts, want, c.name)
		require.Equal(d.t, want, now.Attempts, c.name)
		require.Len(d.t, d.receiverOf(c.name).of(now.EventID), want+lost(&c), c.name)
		require.EqualValues(d.t, "delivered", attempts[len(attempts)-1].Decision, c.name)
	}
}

// Everpost's database is restored from a copy, and Temporal is ahead of it.
func TestRestoredDatabase(t *testing.T) {
	needsTime(t, "a minute or more")
	t.Parallel()
	d := newDisaster(t, "restored")
	backup := d.backUp()

	for _, c := range copies {
		d.script(c.name, c.then)
	}
	d.line.restore(t)
	d.in.waitHealth(t, "ok")
	d.slow.Release()
	d.goOn()
	added := d.endpoint(d.receiver, "/added", fieldsOf{"event_types": []string{"added"}})
	d.script("retrying", http.StatusServiceUnavailable)
	gone := map[string]delivery{
		"delivered": d.accept("delivered", "again-1", "delivered"),
		"retrying":  d.accept("retrying", "again-2", "retrying"),
		"added":     d.accept("added", "again-3", "delivered"),
	}

	require.NoError(t, d.in.process.Terminate())
	d.restore(backup)
	d.grow()
	d.serve()
	d.ask(http.StatusNotFound, http.MethodGet, "/endpoints/"+added.ID, nil, nil)
	for _, made := range gone {
		d.ask(http.StatusNotFound, http.MethodGet, "/events/"+made.EventID, nil, nil)
		d.ask(http.StatusNotFound, http.MethodGet, "/deliveries/"+made.ID, nil, nil)
	}
	d.giveCommands(byPerson, func(c *copied) string { return c.state })
	d.command("retrying", "retry") // all others that were retrying have no workflow
	lost := func(c *copied) int { return c.lost }
	d.requireAllDelivered(lost)

	// What still waits in Temporal finds no payload at its time, which a signal brings forward.
	engine, err := client.Dial(client.Options{HostPort: d.address, Namespace: d.namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	ctx := contextFor(t, patience)
	waits := gone["retrying"]
	require.NoError(t, engine.SignalWorkflow(ctx, waits.WorkflowID, "", "retry-now", nil))
	eventually(ctx, t, func() string {
		if all := d.listDeliveries(url.Values{"state": {"dead_lettered"}}); len(all) != 1 || all[0].ID != waits.ID || text(all[0].Reason) != "payload_removed" {
			return fmt.Sprintf("the dead letters are %+v", all)
		}
		return ""
	})
	for kind, externalID := range map[string]string{"delivered": "again-1", "retrying": "again-2"} {
		again := d.accept(kind, externalID, "delivered")
		require.NotEqual(t, gone[kind].EventID, again.EventID)
		require.Len(t, d.receiver.of(again.EventID), 1)
		require.Len(t, d.receiver.of(gone[kind].EventID), 1, "before the restore")
	}
	require.Len(t, d.listDeliveries(url.Values{}), len(copies)+3, "of the copy, the dead letter, and what was posted again")
	d.requireAllDelivered(lost) // still
}

// Temporal is lost, and Everpost goes on with an empty one.
func TestTemporalLost(t *testing.T) {
	needsTime(t, "a minute or more")
	t.Parallel()
	d := newDisaster(t, "lost")
	d.in.process.Kill()
	d.slow.Release()
	namespace := d.namespace + "-2"
	makeNamespace(contextFor(t, patience), t, d.address, namespace)
	d.in.env["TEMPORAL_NAMESPACE"] = namespace
	d.line.restore(t)
	d.grow()
	d.serve()
	d.giveCommands(byPerson, func(c *copied) string { return c.state })
	d.requireAllDelivered(func(c *copied) int {
		if c.name == "sending" {
			return 1 // it was killed while it sent
		}
		return 0
	})
}

// Temporal is restored from a copy, and the database is ahead of it: nothing is sent twice.
func TestTemporalBehind(t *testing.T) {
	needsTime(t, "a minute or more")
	t.Parallel()
	in := ownHome(t)
	server, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if in.process != nil && in.process.Running() {
			if err := in.stop(); err != nil {
				t.Errorf("stop the instance: %v", err)
			}
		}
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	in.env = in.env.With(settings{"EVERPOST_DATABASE_URL": server.URL(localpg.Database), "EVERPOST_RECONCILE_EVERY": "1s"})
	in.restart(t)
	d := &disaster{bundle: newBundle(t, in, in.client(), "acme"), receiver: newReceiver(t), deliveries: map[string]delivery{}}
	for _, c := range copies {
		if c.state != "pending" { // stopping waits for these
			d.begin(c)
		}
	}
	require.NoError(t, in.stop())
	d.exec("postgres", "create database copy_main template everpost_temporal", "create database copy_visibility template everpost_visibility")
	in.restart(t)
	for _, c := range d.copies() {
		d.script(c.name, c.then)
	}
	d.goOn()
	d.script("delivered", http.StatusServiceUnavailable)
	unknown := d.accept("delivered", "unknown to Temporal", "retrying")
	old := d.deliveries["retried"]

	require.NoError(t, in.stop())
	d.exec("postgres", "drop database everpost_temporal", "alter database copy_main rename to everpost_temporal",
		"drop database everpost_visibility", "alter database copy_visibility rename to everpost_visibility")
	d.grow()
	in.restart(t)
	ctx := contextFor(t, longRecovery)
	d.waitStateIn(ctx, unknown.ID, "delivered")
	require.Len(t, d.receiver.of(unknown.EventID), 2)
	require.NoError(t, in.temporal(t).SignalWorkflow(ctx, old.WorkflowID, "", "retry-now", nil))
	d.awaitWorkflow(ctx, in.temporal(t), old.WorkflowID)

	d.giveCommands(byPerson, func(c *copied) string { return cmp.Or(c.ends, c.state) })
	d.command("retrying", "retry")
	for _, c := range d.copies() {
		end := "delivered"
		if c.ends == "cancelled" {
			end = c.ends
		}
		now := d.waitStateIn(ctx, d.deliveries[c.name].ID, end)
		require.Len(t, d.receiver.of(now.EventID), now.Attempts, c.name)
		require.Len(t, d.attempts(now.ID), now.Attempts, c.name)
	}
}
