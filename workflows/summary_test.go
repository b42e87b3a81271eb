package workflows

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The Web UI's example in docs/retries.md is what a timer really says.
func TestTheDocumentedWaitSummary(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/retries.md")
	require.NoError(t, err)
	m := &Member{DeliveryState: DeliveryState{
		Progress: webhook.Progress{
			State: webhook.StateRetrying, Attempts: 4, RunAttempts: 4, DueAt: time.Date(2026, time.November, 23, 9, 53, 37, 0, time.UTC),
		},
		LastOutcome: &webhook.LastOutcome{Reason: "http_503", Status: 503, RetryAfter: 30 * time.Second},
	}}
	require.Contains(t, strings.Join(strings.Fields(string(text)), " "), "`"+m.waitSummary()+"`")
}

// The summary of a workflow of several says what its deliveries have in common.
func TestSummary(t *testing.T) {
	t.Parallel()
	one, other := webhook.NewEndpointID(), webhook.NewEndpointID()
	start := func(kind string, endpoint webhook.EndpointID) webhook.Ref {
		return webhook.Ref{EventType: kind, EndpointID: endpoint}
	}
	for want, deliveries := range map[string][]webhook.Ref{
		"2 deliveries of order.paid to " + one.String(): {start("order.paid", one), start("order.paid", one)},
		"2 deliveries of order.paid":                    {start("order.paid", one), start("order.paid", other)},
		"2 deliveries to " + one.String():               {start("order.paid", one), start("order.sent", one)},
		"order.paid to " + one.String():                 {start("order.paid", one)},
		"3 deliveries":                                  {start("order.paid", one), start("order.sent", other), start("order.paid", one)},
	} {
		require.Equal(t, want, Summary(deliveries))
	}
}
