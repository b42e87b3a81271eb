package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"
)

// newNamespace returns a name that no other test and no earlier run uses.
func newNamespace(prefix string) string { return prefix + "-" + time.Now().Format("150405.000000") }

func TestSetupTemporal(t *testing.T) {
	t.Parallel()
	address, name := sharedTemporal(t), newNamespace("setup")
	setup := func(env settings, args ...string) finished {
		all := settings{"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": name}.With(env)
		f, err := runToEnd(contextFor(t, patience), all, append([]string{"setup-temporal"}, args...)...)
		require.NoError(t, err)
		return f
	}
	const attributes = "DeliveryState, EndpointId, EventId, EventIds, EventType, TenantId"
	for _, step := range []struct {
		args []string
		want string
	}{
		{nil, "namespace " + name + ": created, keeps workflows that have ended for 24 h\nsearch attributes: created " + attributes},
		{nil, "namespace " + name + ": exists, keeps workflows that have ended for 24 h\nsearch attributes: all exist"},
		{[]string{"--retention=48h"}, "namespace " + name + ": exists, keeps workflows that have ended for 48 h (before: 24 h)\nsearch attributes: all exist"},
		{nil, "namespace " + name + ": exists, keeps workflows that have ended for 48 h\nsearch attributes: all exist"},
	} {
		f := setup(nil, step.args...)
		require.Zero(t, f.Code, f.Stderr)
		require.Equal(t, step.want, strings.TrimSpace(f.Stdout))
	}

	f := setup(settings{"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "--wait=1s")
	require.Equal(t, 5, f.Code)
	require.Contains(t, f.Stderr, "no answer from Temporal at 127.0.0.1:1: TEMPORAL_ADDRESS: dial tcp 127.0.0.1:1: connect: connection refused")
	f = setup(nil, "--retention=30m")
	require.Equal(t, 2, f.Code)
	require.Contains(t, f.Stderr, "--retention: 30m0s: Temporal keeps workflows for 1h or more")
}

// A search attribute of another type is not replaced, and stays without damage.
func TestSetupTemporalWithAnotherType(t *testing.T) {
	t.Parallel()
	address, name := sharedTemporal(t), newNamespace("other-type")
	ctx := contextFor(t, patience)
	c, err := client.Dial(client.Options{HostPort: address, Namespace: name, Logger: quiet{}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	eventually(ctx, t, func() string {
		_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: name, SearchAttributes: map[string]enumspb.IndexedValueType{"EventType": enumspb.INDEXED_VALUE_TYPE_INT},
		})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	f, err := runToEnd(ctx, settings{"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": name}, "setup-temporal")
	require.NoError(t, err)
	require.Equal(t, 1, f.Code)
	require.Contains(t, f.Stderr, "search attribute EventType: the namespace has it as Int, not Keyword")
}

// finding is what doctor says of one check.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"`
}

// checks are the findings of doctor by their check.
type checks map[string]finding

func doctor(t *testing.T, env settings) (checks, finished) {
	t.Helper()
	f, err := runToEnd(contextFor(t, patience), env, "doctor", "--json")
	require.NoError(t, err)
	var report struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}
	require.NoError(t, json.Unmarshal([]byte(f.Stdout), &report), f.Stderr)
	require.Equal(t, report.OK, f.Code == 0)
	found := checks{}
	for _, c := range report.Checks {
		found[c.Check] = c
		if c.Verdict == "problem" || c.Verdict == "warning" {
			require.NotEmpty(t, c.Remedy, "%s: a remedy is named", c.Check)
		}
	}
	require.Len(t, found, 15)
	return found, f
}

func TestDoctorOfStandalone(t *testing.T) {
	t.Parallel()
	in := shared(t)
	env := in.env.With(nil) // its ports are free ones: their addresses are in the data directory
	found, f := doctor(t, env)
	require.Zero(t, f.Code, f.Stdout)
	for name, c := range found {
		if name == "disk" && c.Verdict == "warning" {
			continue // this machine has little space left
		}
		if name == "mail" {
			require.Equal(t, "skipped", c.Verdict, "it sends none")
			continue
		}
		if name == "process" {
			require.Equal(t, "warning", c.Verdict, "receivers of tests are on this machine")
			require.NotContains(t, c.Detail, " here and ", "its settings are the same")
			continue
		}
		require.Equal(t, "ok", c.Verdict, "%s: %s", name, c.Detail)
	}
	require.Contains(t, found["disk"].Detail, " free for ")
	require.Contains(t, found["temporal"].Detail, "namespace default keeps a workflow for 7 days after its end")

	others, _ := doctor(t, env.With(settings{"EVERPOST_RETENTION": "1000h"}))
	require.Contains(t, others["process"].Detail, "EVERPOST_RETENTION is 1000h0m0s here and 720h0m0s in the running process")

	text, err := runToEnd(contextFor(t, patience), env, "doctor")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^ok +database +PostgreSQL \d+`, text.Stdout)

	env["EVERPOST_DATA_DIR"] = t.TempDir()
	found, f = doctor(t, env)
	require.Equal(t, 1, f.Code)
	require.Contains(t, f.Stderr, "everpost: there are problems: see above")
	require.Equal(t, "problem", found["database"].Verdict)
	require.Equal(t, "skipped", found["schema"].Verdict)
	require.Equal(t, finding{Check: "process", Verdict: "skipped", Detail: "the running process was not asked for its settings: " +
		"no process runs in the data directory"}, found["process"])
}

func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	address, namespace := sharedTemporal(t), newNamespace("doctor")
	makeNamespace(contextFor(t, patience), t, address, namespace)
	in := cluster(t, address, namespace, nil)

	found, f := doctor(t, in.env)
	require.Zero(t, f.Code, f.Stdout)
	require.Equal(t, "warning", found["roles"].Verdict, "the test's login is a superuser")
	require.Equal(t, "skipped", found["disk"].Verdict)
	for _, name := range []string{"settings", "database", "schema", "capacity", "clock", "keys", "temporal", "workers", "lanes", "backlog", "egress"} {
		require.Equal(t, "ok", found[name].Verdict, "%s: %s", name, found[name].Detail)
	}

	invalid, err := runToEnd(contextFor(t, patience), in.env.With(settings{"EVERPOST_OPERATOR_KEY": "short"}), "doctor")
	require.NoError(t, err)
	require.Equal(t, 2, invalid.Code)
	require.Contains(t, invalid.Stderr, "EVERPOST_OPERATOR_KEY: must be a secret of 32 characters or more")
	checked, err := runToEnd(contextFor(t, patience), in.env, "migrate", "--check")
	require.NoError(t, err)
	require.Zero(t, checked.Code, checked.Stderr)
	require.Contains(t, checked.Stdout, "the database is up to date")

	for _, test := range []struct {
		name                   string
		env                    settings
		check, verdict, detail string
	}{
		{"unknown setting", settings{"EVERPOST_RETENTIONS": "1h"}, "settings", "warning", "unknown settings: EVERPOST_RETENTIONS"},
		{"no database", settings{"EVERPOST_DATABASE_URL": "postgres://someone:canary@127.0.0.1:1/everpost"}, "database", "problem", "not reachable"},
		{"another key", settings{"EVERPOST_KEK": "7Z0J3Qh4V0m5oS9yXnq2b8tKcRrW1uEfAaLlDdGgHhM="}, "keys", "ok", "encrypts every secret"},
		{"no key", settings{"EVERPOST_KEK": ""}, "keys", "problem", "no key for secrets at rest"},
		{"no Temporal", settings{"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "temporal", "problem", "no answer from Temporal at 127.0.0.1:1"},
		{"no namespace", settings{"TEMPORAL_NAMESPACE": "nowhere"}, "temporal", "problem", "there is no namespace nowhere"},
		{"no TLS", settings{"TEMPORAL_ADDRESS": "temporal.example.com:7233"}, "settings", "problem", "would not be encrypted"},
		{"no known port", nil, "process", "skipped", "EVERPOST_ADMIN_LISTEN is a free port"},
		{"a process with other settings", settings{"EVERPOST_ADMIN_LISTEN": strings.TrimPrefix(in.addr["admin"], "http://"), "EVERPOST_RETENTION": "1000h"},
			"process", "warning", "EVERPOST_RETENTION is 1000h0m0s here and "},
		{"no proxy", settings{"EVERPOST_EGRESS_PROXY": "http://someone:canary@127.0.0.1:1"}, "egress", "problem", "the proxy 127.0.0.1:1 does not answer"},
	} {
		found, f := doctor(t, in.env.With(test.env))
		require.Equal(t, test.verdict, found[test.check].Verdict, "%s: %+v", test.name, found[test.check])
		require.Contains(t, found[test.check].Detail, test.detail, test.name)
		require.Equal(t, test.verdict == "problem", f.Code == 1, test.name)
		require.NotContains(t, f.Stdout+f.Stderr, "canary", test.name)
	}

	// With a secret on record a missing key is noticed.
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	found, _ = doctor(t, in.env.With(settings{"EVERPOST_KEK": "7Z0J3Qh4V0m5oS9yXnq2b8tKcRrW1uEfAaLlDdGgHhM="}))
	require.Equal(t, "problem", found["keys"].Verdict)
	require.Contains(t, found["keys"].Detail, "the key is missing that encrypts 1 signing secrets")
	require.NoError(t, in.process.Terminate())
}
