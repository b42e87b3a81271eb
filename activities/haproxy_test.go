package activities_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// idleTime is after what time HAProxy closes idle connections here.
const idleTime = time.Second

// startHAProxy starts HAProxy in front of a receiver, and returns its URL.
func startHAProxy(t *testing.T, receiver string) string {
	t.Helper()
	path := programtest.Find(t, "haproxy", "haproxy")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
global
 maxconn 2000
defaults
 mode http
 timeout connect 10s
 timeout client 30s
 timeout server 30s
 timeout http-keep-alive %dms
frontend f
 bind %s
 default_backend b
backend b
 server s %s
`, idleTime.Milliseconds(), address, receiver), 0o600))
	require.NoError(t, listener.Close())
	var log buffer
	command := exec.CommandContext(t.Context(), path, "-db", "-f", file)
	command.Stdout, command.Stderr = &log, &log
	command.WaitDelay = 10 * time.Second
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, log.String)
	return "http://" + address
}

// Events that come just when HAProxy closes the connections on which they are sent: none of them waits for a retry. Each endpoint
// gets two events, because the client learns the idle time from the second.
func TestEventsAtTheIdleTimeOfHAProxy(t *testing.T) {
	t.Parallel()
	endpoints := 50
	if os.Getenv("EVERPOST_TEST_LONG") != "" {
		endpoints = 1000
	}
	b := setup(t)
	url := startHAProxy(t, b.Addr().String())
	b.update(t, func(ep *webhook.Endpoint) { ep.URL = url + "/0" })
	for i := 1; i < endpoints; i++ {
		ep := b.endpoint
		ep.ID, ep.URL = webhook.NewEndpointID(), fmt.Sprintf("%s/%d", url, i)
		_, err := b.store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, ep, secret)
		require.NoError(t, err)
	}
	p := b.guarded(t, admission.New(admission.Config{}), nil)
	var first, second []activities.AttemptInput
	for _, inputs := range []*[]activities.AttemptInput{&first, &second} {
		accepted, err := b.store.Events.Accept(t.Context(), webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: []byte(payload)})
		require.NoError(t, err)
		require.Len(t, accepted.Deliveries, endpoints)
		for _, start := range accepted.Deliveries {
			*inputs = append(*inputs, activities.AttemptInput{Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}})
		}
		slices.SortFunc(*inputs, func(x, y activities.AttemptInput) int { return bytes.Compare(x.EndpointID[:], y.EndpointID[:]) })
	}
	results := make([]activities.AttemptResult, endpoints)
	var sending sync.WaitGroup
	for i := range endpoints {
		sending.Go(func() {
			// One after the other, so that each has the processor to itself.
			<-time.After(time.Duration(i/50) * 500 * time.Millisecond)
			if _, err := p.attempt(first[i]); err != nil {
				t.Error(err)
			}
			// An attempt reads the payload before it sends, which takes some milliseconds.
			spread, err := rand.Int(rand.Reader, big.NewInt(int64(30*time.Millisecond)))
			if err != nil {
				t.Error(err)
				return
			}
			<-time.After(idleTime - 20*time.Millisecond + time.Duration(spread.Int64()))
			if results[i], err = p.attempt(second[i]); err != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	reused := 0
	for i, result := range results {
		require.Equal(t, webhook.StateDelivered, result.State, result.LastOutcome.String())
		require.Equal(t, 1, result.RunAttempts)
		if result.Attempts > 1 {
			require.Equal(t, []retry.Reason{retry.ReasonConnectionReused, retry.ReasonDelivered}, b.reasons(t, second[i]))
			reused++
		}
	}
	t.Logf("%d of %d events met a connection that was being closed", reused, endpoints)
}
