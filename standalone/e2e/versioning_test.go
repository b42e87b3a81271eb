package e2e_test

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
	"github.com/everpost/everpost/internal/receivertest"
)

// buildRelease makes everpost-cluster under a version.
func buildRelease(t *testing.T, into, version string) string {
	t.Helper()
	out := filepath.Join(into, "everpost-cluster-"+version)
	command := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-buildvcs=false", "-ldflags", "-X main.version="+version,
		"-o", out, "./cmd/everpost")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	require.NoError(t, command.Run())
	return out
}

// versionPatience is how long the parts of Temporal may take to learn of a new current version: on a machine that runs other installations at the
// same time they have taken more than a minute.
const versionPatience = 5 * time.Minute

// An upgrade with Worker Versioning, process by process: APIs and workers of two releases side by side, either way round, and a
// workflow that began under the one goes on under the other. EVERPOST_TEST_PREVIOUS_BINARY names the cluster binary of a real
// release before this one; without it both are built from this commit.
func TestUpgradeWithWorkerVersioning(t *testing.T) {
	t.Parallel()
	address, namespace := sharedTemporal(t), newNamespace("versioning")
	in := ownHome(t)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Stop(context.WithoutCancel(t.Context()))) })
	before, after := cmp.Or(os.Getenv("EVERPOST_TEST_PREVIOUS_BINARY"), buildRelease(t, in.home, "v1.0.0")), buildRelease(t, in.home, "v1.1.0")
	env := clusterSettings(database.URL(localpg.Database), address, namespace).With(settings{
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_WORKER_VERSIONING": "true",
	})
	run := func(binary string, args ...string) string {
		t.Helper()
		f, err := processtest.Run(contextFor(t, startPatience), binary, env, args...)
		require.NoError(t, err)
		require.Zero(t, f.Code, f.Stderr)
		return f.Stdout
	}
	start := func(binary, command string) *process {
		t.Helper()
		p, err := processtest.Launch(binary, env, in.log, command)
		require.NoError(t, err)
		t.Cleanup(func() {
			if p.Running() {
				require.NoError(t, p.Terminate())
			}
		})
		addr, err := p.Ready(contextFor(t, startPatience))
		require.NoError(t, err)
		if command == "api" {
			in.addr = addr
		}
		return p
	}
	run(before, "migrate")
	run(before, "setup-temporal")
	api, old := start(before, "api"), start(before, "worker")
	in.key = env["EVERPOST_OPERATOR_KEY"]
	require.Regexp(t, `^workers: \S+ is the current version \(before: without a version\)`, run(before, "setup-temporal", "--make-current"))

	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently(), "circuit_breaker": fieldsOf{"enabled": false}}) // however often a version is asked for
	engine, err := client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	// versionOf is the release whose worker completed a workflow's last task.
	versionOf := func(id string) string {
		described, err := engine.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return described.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
	}
	deliver := func(id string) string {
		t.Helper()
		b.command(http.StatusAccepted, id, "retry", nil)
		d := b.waitState(id, "delivered")
		b.awaitWorkflow(t.Context(), engine, d.WorkflowID)
		return versionOf(d.WorkflowID)
	}
	waiting := func() string {
		t.Helper()
		r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable})
		_, d := b.postOne("order.paid", `{}`)
		return b.waitState(d.ID, "retrying").ID
	}
	awaitVersion := func(version string) {
		t.Helper()
		eventually(contextFor(t, versionPatience), t, func() string {
			if got := versionOf(b.delivery(waiting()).WorkflowID); got != version {
				return "a workflow is of " + got
			}
			return ""
		})
	}
	first, second := waiting(), waiting()
	released := deliver(first)
	require.NotEqual(t, "v1.1.0", released)

	// The new workers run together with the old ones. Once their version is current they begin what comes, also from an old API, and go on
	// with what the old ones began.
	run(after, "migrate")
	replacement := start(after, "worker")
	require.Contains(t, run(after, "setup-temporal", "--make-current"), "workers: v1.1.0 is the current version (before: "+released+")")
	awaitVersion("v1.1.0")
	for binary, want := range map[string]string{after: "v1.1.0 is the current version", before: "and the current version is v1.1.0"} {
		f, err := processtest.Run(contextFor(t, patience), binary, env, "doctor")
		require.NoError(t, err)
		require.Contains(t, f.Stdout, want)
	}
	require.NoError(t, old.Terminate())
	require.Equal(t, "v1.1.0", deliver(second))
	third := waiting()

	// The API is replaced, too; then the workers are rolled back, below a new API.
	require.NoError(t, api.Terminate())
	start(after, "api")
	b.client.base = in.addr["api"]
	old = start(before, "worker")
	run(before, "setup-temporal", "--make-current")
	awaitVersion(released)
	require.NoError(t, replacement.Terminate())
	require.Equal(t, released, deliver(third))
	require.NoError(t, old.Terminate())

	// A version without workers does not become current.
	empty := newNamespace("empty")
	makeNamespace(contextFor(t, patience), t, address, empty)
	f, err := processtest.Run(contextFor(t, patience), after, env.With(settings{"TEMPORAL_NAMESPACE": empty}), "setup-temporal", "--make-current", "--wait=10s")
	require.NoError(t, err)
	require.Equal(t, 1, f.Code)
	require.Contains(t, f.Stderr, "make v1.1.0 the current version: no worker of it has polled within 10s")
}
