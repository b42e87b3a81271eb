package recovery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// brokenEndpoint is a store of deliveries that an internal fault has held, with a check of the endpoint.
type brokenEndpoint struct {
	heldStore

	fault  error
	checks []time.Time
	way    sync.Mutex
}

func holding(endpoint webhook.EndpointID, held []webhook.Start) *brokenEndpoint {
	return &brokenEndpoint{heldStore: heldStore{
		starts: map[webhook.EndpointID][]webhook.Start{endpoint: held},
	}}
}

func (b *brokenEndpoint) check(context.Context, webhook.EndpointID) error {
	b.way.Lock()
	defer b.way.Unlock()
	b.checks = append(b.checks, time.Now())
	return b.fault
}

func (b *brokenEndpoint) is(err error) {
	b.way.Lock()
	defer b.way.Unlock()
	b.fault = err
}

func (b *brokenEndpoint) checked() []time.Time {
	b.way.Lock()
	defer b.way.Unlock()
	return b.checks
}

// An endpoint with an internal fault is checked after 1 s, then after twice as long each time, up to a minute. When the fault has ended, its
// held deliveries are released: one first, then more and more.
func TestFaultyEndpointIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint, held := enginetest.HeldFor(40)
		b := holding(endpoint, held)
		b.is(errors.New("its key is lost"))
		f, c := enginetest.New(t)
		d := setup(t, parts{Client: c, HeldStore: b, Admission: admissionStub{releasable: upTo(25)}})
		d.checks(b.check)
		_, known := d.held.FaultOf(endpoint)
		require.False(t, known)
		began := time.Now()
		d.held.Faulted(endpoint, "its key is lost")
		d.held.Faulted(endpoint, "said by another that was under way")
		d.run(d.release.Run)
		defer d.Lifetime.Stop()
		<-time.After(20 * time.Minute)
		what, known := d.held.FaultOf(endpoint)
		require.True(t, known)
		require.Equal(t, "its key is lost", what)
		checks := b.checked()
		require.InDelta(t, 25, len(checks), 3, "one a minute")
		require.LessOrEqual(t, checks[0].Sub(began), 3*time.Second)
		for i := range checks[1:] {
			require.LessOrEqual(t, checks[i+1].Sub(checks[i]), lastCheck+releaseEvery)
		}
		require.Empty(t, f.Started())

		b.is(nil)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		_, known = d.held.FaultOf(endpoint)
		require.False(t, known)
		require.False(t, d.held.IsFaulty(endpoint), "it is forgotten")
		require.Len(t, enginetest.Begun(t, f), len(held))
		require.Equal(t, []int{1, 1, 2, 4, 8}, b.looks[:5])
	})
}

// Where admission has no room for what is held, the endpoint can be sent to all the same, and is
// not tried each second.
func TestFaultyEndpointWithoutRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint, held := enginetest.HeldFor(10)
		b := holding(endpoint, held)
		f, c := enginetest.New(t)
		var room atomic.Int64
		d := setup(t, parts{Client: c, HeldStore: b, Admission: admissionStub{releasable: func(webhook.EndpointID) int { return int(room.Load()) }}})
		d.checks(b.check)
		d.held.Faulted(endpoint, "its key is lost")
		d.run(d.release.Run)
		defer d.Lifetime.Stop()
		<-time.After(10 * time.Second)
		_, known := d.held.FaultOf(endpoint)
		require.False(t, known)
		require.Len(t, b.checked(), 1)
		require.Empty(t, f.Started())
		room.Store(25)
		<-time.After(time.Minute)
		synctest.Wait()
		require.NotEmpty(t, f.Started())
		require.False(t, d.held.IsFaulty(endpoint))

		// A fault that only a request meets breaks it again.
		room.Store(0)
		d.held.Faulted(endpoint, "the proxy is away")
		<-time.After(5 * time.Second)
		d.held.Faulted(endpoint, "the proxy is away")
		_, known = d.held.FaultOf(endpoint)
		require.True(t, known)
	})
}

// A fault that only a request meets stops the release again.
func TestFaultyEndpointThatFailsItsProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint, held := enginetest.HeldFor(1000)
		b := holding(endpoint, held)
		_, c := enginetest.New(t)
		d := setup(t, parts{Client: c, HeldStore: b, Admission: admissionStub{releasable: upTo(100)}})
		d.checks(b.check)
		b.onLook = func() { // the released delivery meets the fault a moment later
			time.AfterFunc(100*time.Millisecond, func() { d.held.Faulted(endpoint, "the proxy is away") })
		}
		d.held.Faulted(endpoint, "the proxy is away")
		d.run(d.release.Run)
		defer d.Lifetime.Stop()
		<-time.After(20 * time.Minute)
		_, known := d.held.FaultOf(endpoint)
		require.True(t, known, "nothing else goes meanwhile")
		_, looks := b.counts()
		require.InDelta(t, 25, looks, 5)
		for _, limit := range b.looks {
			require.Equal(t, 1, limit)
		}
	})
}

// A change of the endpoint ends the wait for the next check. The number of faulty endpoints is bounded.
func TestFaultyEndpointIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endpoint := webhook.NewEndpointID()
		b := &brokenEndpoint{fault: errors.New("its key is lost")}
		d := setup(t, parts{HeldStore: b, Admission: admissionStub{releasable: upTo(25)}})
		d.checks(b.check)
		d.held.Faulted(endpoint, "its key is lost")
		d.run(d.release.Run)
		<-time.After(10*time.Minute + 30*time.Second)
		b.is(nil)
		d.held.EndpointChanged(endpoint)
		d.held.EndpointChanged(webhook.NewEndpointID())
		<-time.After(3 * time.Second)
		_, known := d.held.FaultOf(endpoint)
		require.False(t, known)
		d.Lifetime.Stop()

		for range maxFaulty + 5 {
			d.held.Faulted(webhook.NewEndpointID(), "its key is lost")
		}
		require.LessOrEqual(t, d.held.faulty, maxFaulty)
	})
}
