package enginetest

import (
	"bytes"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/everpost/everpost/internal/webhook"
)

// Accepted is an event of the tenant acme with n deliveries to as many endpoints, as it was stored just now.
func Accepted(n int) webhook.Accepted {
	a := webhook.Accepted{Payload: []byte("{}")}
	for range n {
		event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
		a.Deliveries = append(a.Deliveries, webhook.Start{
			Ref: webhook.Ref{
				DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint, TenantID: "acme", EventType: "order.paid",
			},
			Run: 1, CreatedAt: time.Now(), ReceivedAt: time.Now(), GiveUpAt: time.Now().Add(time.Hour),
		})
	}
	return a
}

// WaitingDelivery is a delivery that waits for its fourth attempt in its own workflow.
func WaitingDelivery() webhook.Delivery {
	start := Accepted(1).Deliveries[0]
	return webhook.Delivery{
		Ref: start.Ref, WorkflowID: start.WorkflowID(),
		Progress: webhook.Progress{Run: 1, Seq: 3, State: webhook.StateRetrying, Attempts: 3, GiveUpAt: start.GiveUpAt.UTC().Truncate(time.Microsecond)},
	}
}

// HeldFor are n held deliveries of one endpoint, the oldest first.
func HeldFor(n int) (webhook.EndpointID, []webhook.Start) {
	starts, endpoint := Accepted(n).Deliveries, webhook.NewEndpointID()
	for i := range starts {
		starts[i].EndpointID = endpoint
		starts[i].DeliveryID = webhook.DeliveryIDOf(starts[i].EventID, endpoint)
	}
	slices.SortFunc(starts, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
	for i := range starts {
		s := &starts[i]
		s.GiveUpAt = s.GiveUpAt.UTC().Truncate(time.Microsecond)
		s.Resume = &webhook.Progress{
			Run: 1, Seq: 1 + i, State: webhook.StateHeld, Reason: webhook.ReasonBacklog, Attempts: i, RunAttempts: i, GiveUpAt: s.GiveUpAt,
		}
	}
	return endpoint, starts
}

// RefsOf are the deliveries of starts.
func RefsOf(starts []webhook.Start) (refs []webhook.Ref) {
	for _, s := range starts {
		refs = append(refs, s.Ref)
	}
	return refs
}

// AlreadyStarted is the error of a repeated start.
func AlreadyStarted() error {
	return serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "", "a run")
}

// WaysNotToWrite are those of a Temporal that answers health checks: it has lost its shards,
// its database is read-only, or something else is wrong.
func WaysNotToWrite() map[string]error {
	return map[string]error{
		"late": nil, "unavailable": serviceerror.NewUnavailable("shard status unknown"), "fails": serviceerror.NewInternal("read-only transaction"),
	}
}

// ClientOf is a client of a Temporal at an address where there is none.
func ClientOf(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// ClosedPort is an address that refuses connections.
func ClosedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// SilentPort is an address that accepts connections and never answers.
func SilentPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var open []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return l.Addr().String()
}
