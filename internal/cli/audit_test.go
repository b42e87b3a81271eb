package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAuditLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint()
	printed := b.ok("audit")
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	require.Len(t, lines, 3, printed)
	require.Equal(t, []string{"AT", "ACTION", "SUBJECT", "TENANT", "KEY", "BY", "FROM", "REQUEST"}, strings.Fields(lines[0]))
	entry := strings.Fields(lines[1]) // the time is two of them
	require.Equal(t, []string{"endpoint.create", id, "acme"}, entry[2:5])
	require.True(t, strings.HasPrefix(entry[5], "key_"), "a preset operator key has an id, too")
	require.Contains(t, lines[1], "127.0.0.1", "address of the request")
	require.Contains(t, lines[2], "tenant.create")
	require.Contains(t, lines[2], "test", "the actor is shown when there is no key")

	require.Equal(t, 2, strings.Count(b.ok("audit", "--action=endpoint.create", "--by-key="+entry[5]), "\n"))
	require.Empty(t, b.ok("audit", "--until=1h"))
	entries := b.json("audit", "--since=1h", "--limit=1")
	require.Len(t, entries["data"], 1)
	require.NotNil(t, entries["next_cursor"])

	all := call{args: []string{"audit", "--url=" + b.url, "--key=" + operatorKey}}.run(t)
	require.Zero(t, all.code, all.stderr)
	require.Equal(t, printed, all.stdout, "without --tenant the list has all tenants, and there is one")
	require.Contains(t, b.fails("audit", "--by-key=evk_1"), "key_")
}
