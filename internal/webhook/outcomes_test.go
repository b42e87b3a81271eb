package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestOutcomesAreBoundedInAll(t *testing.T) {
	t.Parallel()
	var o webhook.EventOutcomes
	o.Add(webhook.StateDelivered, 100)
	o.Add(webhook.StateRetrying, 100)
	o.Add(webhook.StateDiscarded, 50)
	require.Equal(t, webhook.EventOutcomes{Delivered: 100, Waiting: 100, Failed: 50}, o, "all are counted")
	o.Add(webhook.StateCancelled, 1)
	require.Equal(t, webhook.EventOutcomes{Delivered: 100, Waiting: 100, Failed: 50, More: true}, o)
}
