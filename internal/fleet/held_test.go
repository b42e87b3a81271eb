package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Only the owner of an endpoint's lane releases held deliveries: a process that has held some tells it. The owner tells nobody.
func TestTheOwnerIsToldOfHeldDeliveries(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	a.TellHeld(endpoint)
	b.TellHeld(endpoint)
	require.Eventually(t, func() bool { return len(s.heldAt("a")) == 1 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, []webhook.EndpointID{endpoint}, s.heldAt("a"))
	require.Empty(t, s.heldAt("b"))
}
