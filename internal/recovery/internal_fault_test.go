package recovery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// brokenEndpoint is the check of an endpoint with an internal fault.
type brokenEndpoint struct {
	mu     sync.Mutex
	fault  error
	checks []time.Time
}

func (b *brokenEndpoint) CheckEndpoint(context.Context, webhook.EndpointID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks = append(b.checks, time.Now())
	return b.fault
}

func (b *brokenEndpoint) is(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = err
}

func (b *brokenEndpoint) checked() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checks
}

// An endpoint with an internal fault is checked after 1 s, then after twice as long each time, up to a minute. A fault that is met again soon
// after it has ended is not checked at once.
func TestFaultyEndpointIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint, b := webhook.NewEndpointID(), &brokenEndpoint{fault: errors.New("its key is lost")}
		d := setup(t, parts{Requests: b})
		_, known := d.faults.FaultOf(endpoint)
		require.False(t, known)
		began := time.Now()
		d.faults.Faulted(endpoint, "its key is lost")
		d.faults.Faulted(endpoint, "said by another that was under way")
		d.run(d.checks.Run)
		defer d.Lifetime.Stop()
		<-time.After(20 * time.Minute)
		what, known := d.faults.FaultOf(endpoint)
		require.True(t, known)
		require.Equal(t, "its key is lost", what)
		checks := b.checked()
		require.InDelta(t, 25, len(checks), 3, "one a minute")
		require.LessOrEqual(t, checks[0].Sub(began), 3*time.Second)
		for i := range checks[1:] {
			require.LessOrEqual(t, checks[i+1].Sub(checks[i]), lastCheck+checkEvery)
		}

		b.is(nil)
		<-time.After(lastCheck + checkEvery)
		_, known = d.faults.FaultOf(endpoint)
		require.False(t, known)
		require.True(t, d.faults.IsFaulty(endpoint), "some faults are met by a request only")
		d.faults.Faulted(endpoint, "the proxy is away")
		<-time.After(lastCheck / 2)
		_, known = d.faults.FaultOf(endpoint)
		require.True(t, known)
		<-time.After(2*lastCheck + 2*checkEvery)
		require.False(t, d.faults.IsFaulty(endpoint), "it is forgotten")
	})
}

// A change of the endpoint ends the wait for the next check. The number of faulty endpoints is bounded.
func TestFaultyEndpointIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint, b := webhook.NewEndpointID(), &brokenEndpoint{fault: errors.New("its key is lost")}
		d := setup(t, parts{Requests: b})
		d.faults.Faulted(endpoint, "its key is lost")
		d.run(d.checks.Run)
		<-time.After(10*time.Minute + 30*time.Second)
		b.is(nil)
		d.faults.EndpointChanged(endpoint)
		d.faults.EndpointChanged(webhook.NewEndpointID())
		<-time.After(3 * time.Second)
		_, known := d.faults.FaultOf(endpoint)
		require.False(t, known)
		d.Lifetime.Stop()

		for range maxFaulty + 5 {
			d.faults.Faulted(webhook.NewEndpointID(), "its key is lost")
		}
		require.LessOrEqual(t, len(d.faults.byID), maxFaulty)
	})
}

// Checks that hang are given up, and keep nothing else from going on.
func TestChecksThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := setup(t, parts{Requests: checker(func(ctx context.Context, _ webhook.EndpointID) error {
			<-ctx.Done()
			return ctx.Err()
		})})
		for range 200 {
			d.faults.faulted(webhook.NewEndpointID(), "its key is lost", time.Now().Add(-time.Minute))
		}
		began := time.Now()
		ended, err := d.checks.runOnce(t.Context())
		require.Zero(t, ended)
		require.Error(t, err)
		require.Equal(t, checksPerRound/checkWidth*checkTimeout, time.Since(began))
	})
}
