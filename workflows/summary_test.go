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
	d := &delivery{DeliveryInput: DeliveryInput{DeliveryState: DeliveryState{
		Progress: webhook.Progress{
			State: webhook.StateRetrying, Attempts: 4, RunAttempts: 4, DueAt: time.Date(2026, time.November, 23, 9, 53, 37, 0, time.UTC),
		},
		LastOutcome: &webhook.LastOutcome{Reason: "http_503", Status: 503, RetryAfter: 30 * time.Second},
	}}}
	require.Contains(t, strings.Join(strings.Fields(string(text)), " "), "`"+d.waitSummary()+"`")
}
