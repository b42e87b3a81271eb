package cli_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The life of a tenant.
func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenants := func(args ...string) result {
		return call{args: append(append([]string{"tenants"}, args...), "--url="+b.url, "--key="+operatorKey)}.run(t)
	}
	r := tenants("create", "globex", "--name=Globex", "--metadata=plan=gold", `--data={"limits":{"endpoints":5}}`)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "Globex")
	r = tenants("create", "globex", "--name=Another")
	require.Equal(t, 4, r.code)
	require.Equal(t, "everpost: there is a tenant globex already; 'everpost tenants update' changes it\n", r.stderr)

	r = tenants("update", "globex", "--contact=ops@globex.example")
	require.Zero(t, r.code, r.stderr)
	r = tenants("update", "globex", "--retention-payloads=1h", "--retention-deliveries=48h")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "payloads=1h")
	r = tenants("update", "globex", "--retention-payloads=null", "--retention-attempts=2h")
	require.Zero(t, r.code, r.stderr)
	r = tenants("update", "globex", "--retention-attempts=1000h")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, "the installation keeps nothing for longer")
	for _, show := range []string{"get", "show"} {
		r = tenants(show, "globex")
		require.Zero(t, r.code, r.stderr)
		for _, kept := range []string{"Globex", "ops@globex.example", "plan=gold", "endpoints=5", "attempts=2h", "deliveries=48h"} {
			require.Contains(t, r.stdout, kept, "what is not named stays as it is")
		}
	}
	list := rows(t, tenants("list").stdout)
	require.Equal(t, []string{"ID", "NAME", "CONTACT", "CREATED"}, list[0])
	require.Len(t, list, 3, "acme and globex")

	r = tenants("export", "globex")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `^\{"kind":"tenant","data":\{"id":"globex",[^\n]*\n(.*\n)*\{"kind":"end","data":\{"audit":\d,"tenant":1\}\}\n$`, r.stdout)
	require.Equal(t, 3, tenants("export", "nobody").code)

	r = tenants("delete", "globex")
	require.Equal(t, result{stdout: "deleted globex\n"}, r)
	r = tenants("get", "globex")
	require.Equal(t, 3, r.code)
	r = tenants("delete", "globex", "--everything")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "deleting", "also one that was deleted before")
	require.Equal(t, 2, tenants("update", "acme").code, "nothing to change")
	require.Equal(t, 4, tenants("create", "no/such", "--name=x").code)
	r = tenants("update", "acme", "--retry-policy=fst")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, `got "fst"`)
}

// Each kind of failure has its exit code.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	known := b.endpoint()
	missing := webhook.NewEndpointID().String()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"detail":"busy"}`))
	}))
	defer busy.Close()
	_, deliveries := b.send("order.paid")
	gone := webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID()).String()
	for _, c := range []struct {
		url  string
		args []string
		want int
	}{
		{b.url, []string{"endpoints", "get", known}, 0},
		{b.url, []string{"endpoints", "get", "ep_1"}, 2},
		{b.url, []string{"endpoints", "update", known}, 2},
		{b.url, []string{"send", "order.paid", "{"}, 2},
		{b.url, []string{"endpoints", "get", missing}, 3},
		{b.url, []string{"deliveries", "cancel", gone}, 3},
		{b.url, []string{"endpoints", "create", "ftp://example.com"}, 4},
		{b.url, []string{"deliveries", "replay", deliveries[0]}, 4},
		{b.url, []string{"deliveries", "replay", deliveries[0], gone}, 1}, // one of each
		{busy.URL, []string{"events", "list"}, 5},
		{"http://" + closedPort(t), []string{"events", "list"}, 5},
	} {
		r := call{args: at(c.url, c.args...)}.run(t)
		require.Equal(t, c.want, r.code, "%v: %s", c.args, r.stderr)
	}
	code, _, stderr := run(t, nil, "keys", "list", "--database-url=postgres://someone@127.0.0.1:1/x?sslmode=disable")
	require.Equal(t, 5, code, stderr)
}
