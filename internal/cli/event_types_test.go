package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventTypesCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := func(args ...string) result {
		return call{args: append(append([]string{"event-types"}, args...), "--url="+b.url, "--key="+operatorKey)}.run(t)
	}
	ok := func(args ...string) string {
		r := run(args...)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	ok("put", "invoice/paid", "--group=Money", "--description=Paid", "--validation=warn",
		`--data={"versions":[{"version":1,"schema":{"properties":{"total":{}}},"examples":[{"total":1}]}]}`)
	require.Contains(t, ok("list", "--group=Money", "--prefix=invoice/"), "invoice/paid  Money  active  warn        1         Paid")
	require.Contains(t, ok("show", "invoice/paid", "--json"), `{"version":1,"schema":{"properties":{"total":{}}},"examples":[{"total":1}]}`)
	require.Contains(t, ok("show", "invoice/paid"),
		"version 1, schema:\n  {\n    \"properties\": {\n      \"total\": {}\n    }\n  }\nexample 1:\n  {\n    \"total\": 1\n  }\n")
	require.Contains(t, ok("update", "invoice/paid", "--state=deprecated", "--if-match=*"), "deprecated")
	r := run("put", "invoice/paid", "--if-absent")
	require.Contains(t, r.stderr, "exists already")
	r = run("put", "invoice/paid", "--if-absent", "--if-match=*")
	require.Contains(t, r.stderr, "cannot be given together with --if-match")
	ok("put", "invoice/open", "--if-absent")
	r = run("update", "invoice/paid", `--if-match="7"`, "--group=A")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, "was changed since it was read")

	shown := ok("import", `--schemas={"invoice/paid":{"required":["id"]},"new":{}}`, "--dry-run")
	for _, part := range []string{"invoice/paid  updated  2        /total   /id       -", "new           created  1", "nothing was changed"} {
		require.Contains(t, shown, part)
	}
	file := filepath.Join(t.TempDir(), "webhooks.json")
	exported := ok("export")
	require.NoError(t, os.WriteFile(file, []byte(exported), 0o600))
	require.Contains(t, ok("import", "--openapi=@"+file, "--json"), `"change":"unchanged"`)
	require.True(t, strings.HasPrefix(exported, "{"))
	require.Equal(t, 2, run("import").code)
	ok("update", "invoice/paid", "--validation=enforce")
	r = call{args: []string{"send", "invoice/paid", `{"id":1}`, "--url=" + b.url, "--key=" + operatorKey, "--tenant=acme"}}.run(t)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, ok("update", "invoice/paid", `--data={"versions":[{"version":1,"schema":{"required":["id"]}}]}`),
		"\nversion 1, compared with 1: removed /total; required /id\n")
	r = call{args: []string{"send", "invoice/paid", `{"total":1}`, "--url=" + b.url, "--key=" + operatorKey, "--tenant=acme"}}.run(t)
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, "payload at /id: is required")
	require.Equal(t, "deleted invoice/paid\n", ok("delete", "invoice/paid"))
	r = run("show", "invoice/paid")
	require.Equal(t, 3, r.code)
	require.Equal(t, "everpost: no such event type\n", r.stderr)
}
