package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestStats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint()
	endpoint, err := webhook.ParseEndpointID(id)
	require.NoError(t, err)
	minute := time.Now().UTC().Truncate(time.Minute)
	row := func(tenant string, id webhook.EndpointID, delivered int64) webhook.StatisticsRow {
		r := webhook.StatisticsRow{TenantID: tenant, EndpointID: id, Minute: minute}
		r.Counts.Attempts[webhook.ClassDelivered] = delivered
		return r
	}
	require.NoError(t, b.store.Statistics.AddStatistics(t.Context(), webhook.StatisticsFlush{Writer: [16]byte{1}, Seq: 1, Rows: []webhook.StatisticsRow{
		row("", webhook.EndpointID{}, 103), row("acme", webhook.EndpointID{}, 102), row("acme", endpoint, 101),
	}}))
	for args, want := range map[string]string{"": "102", "--endpoint=" + id: "101", "--since=10m --step=1m": "102"} {
		lines := strings.Split(strings.TrimSpace(b.ok(append([]string{"stats"}, strings.Fields(args)...)...)), "\n")
		require.Len(t, lines, 3, args)
		require.Equal(t, []string{"AT", "DELIVERED", "4XX"}, strings.Fields(lines[0])[:3])
		require.Equal(t, minute.Format(time.DateTime)+" "+want, strings.Join(strings.Fields(lines[1])[:3], " "))
		require.Equal(t, []string{"total", want, "0"}, strings.Fields(lines[2])[:3])
	}
	require.Equal(t, "1h", b.json("stats", "--since=24h")["step"])

	all := call{args: []string{"stats", "--url=" + b.url, "--key=" + operatorKey}}.run(t)
	require.Zero(t, all.code, all.stderr)
	require.Contains(t, all.stdout, "103", "without --tenant they are of all tenants")
	alone := call{args: []string{"stats", "--url=" + b.url, "--key=" + operatorKey, "--endpoint=" + id}}.run(t)
	require.Contains(t, alone.stderr, "--tenant: is required with --endpoint")
	require.Contains(t, b.fails("stats", "--step=1d"), "must be 1m or 1h")
}
