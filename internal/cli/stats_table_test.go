package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

func TestStatsTable(t *testing.T) {
	t.Parallel()
	const counts = `"attempts":{"delivered":1,"http_4xx":2,"http_5xx":3,"timeout":4,"connection":5,"dns":6,"tls":7,"other":8},
		"first_attempts":9,"first_delivered":10,"ended":{"delivered":11,"dead_lettered":12,"cancelled":13,"discarded":14},"filter_matched":18,"filtered":19`
	rows, err := statsTable(client.Answer{Body: []byte(`{"data":[{"at":"2026-01-31T09:30:00.000000Z",` + counts + `,"latency_ms":{"p50":15,"p95":16,"p99":17}}],
		"totals":{` + counts + `,"latency_ms":{"p50":null,"p95":null,"p99":null}}}`)})
	require.NoError(t, err)
	require.Equal(t, [][]string{
		{
			"AT", "DELIVERED", "4XX", "5XX", "TIMEOUT", "CONNECTION", "DNS", "TLS", "OTHER", "FIRST", "ENDED", "DEAD", "CANCELLED", "DISCARDED",
			"FILTERED", "P50", "P95", "P99",
		},
		{"2026-01-31 09:30:00", "1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "12", "13", "14", "19", "15 ms", "16 ms", "17 ms"},
		{"total", "1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "12", "13", "14", "19", "-", "-", "-"},
	}, rows)

	_, err = statsTable(client.Answer{Body: []byte(`<html>`)})
	require.Error(t, err)
}
