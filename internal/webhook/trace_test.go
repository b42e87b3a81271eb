package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestTraceInRun(t *testing.T) {
	t.Parallel()
	const trace webhook.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	one, other := webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID()), webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())

	below := trace.InRun("run-1", one)
	require.Regexp(t, `^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$`, string(below))
	require.NotEqual(t, trace, below)
	require.Equal(t, below, trace.InRun("run-1", one), "the same in every process")
	require.NotEqual(t, below, trace.InRun("run-2", one))
	require.NotEqual(t, below, trace.InRun("run-1", other))
	require.Contains(t, string(webhook.Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").InRun("run-1", one)), "-00", "not sampled")
	for _, none := range []webhook.Trace{"", "rubbish", trace + "0"} {
		require.Empty(t, none.InRun("run-1", one))
	}
}
