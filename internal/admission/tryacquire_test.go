package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TryAcquire admits where no delivery waits and the receiver is healthy; else it changes nothing.
func TestTryAcquire(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(t *testing.T, ctl *Controller, req Request)
		enters bool
	}{
		"nothing is known": {func(*testing.T, *Controller, Request) {}, true},
		"well": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		}, true},
		"the last failed": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
		}, false},
		"recovered": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req)).Done(refused(time.Millisecond))
			admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
		}, true},
		"slow": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			permit := admit(t, ctl, another(req))
			elapse(3 * time.Second)
			permit.Done(delivered(3 * time.Second))
		}, false},
		"one slot is free": {func(t *testing.T, ctl *Controller, req Request) { t.Helper(); admit(t, ctl, another(req)) }, true},
		"no slot is free": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req))
			admit(t, ctl, another(req))
		}, false},
		"a reservation": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			first, second := admit(t, ctl, another(req)), admit(t, ctl, another(req))
			decision := ctl.Acquire(canceled(), another(req))
			permit := decision.Permit
			require.Nil(t, permit)
			require.True(t, decision.Deferred())
			waiting := ctl.Acquire(t.Context(), another(req))
			require.True(t, waiting.Deferred())
			first.Done(delivered(time.Millisecond))
			second.Done(delivered(time.Millisecond))
		}, false},
		"asked to wait": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req)).Done(Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true, PaceFor: time.Minute})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				req.Limits = Limits{MaxInFlight: 2, Rate: 1000}
				test.before(t, ctl, req)
				before := ctl.Totals()
				permit := ctl.TryAcquire(req)
				require.Equal(t, test.enters, permit != nil)
				if test.enters {
					require.Equal(t, before.InFlight+1, ctl.Totals().InFlight)
					permit.Cancel()
				}
				require.Equal(t, before.InFlight, ctl.Totals().InFlight)
				require.Equal(t, before.Reserved, ctl.Totals().Reserved)
				require.Equal(t, before.Waiting, ctl.Totals().Waiting)
			})
		})
	}
}

// A rate that is used up is not overdrawn.
func TestTryAcquireKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		req.Limits = Limits{MaxInFlight: 100, Rate: 10}
		sent := 0
		for begun := time.Now(); time.Since(begun) < 10*time.Second; elapse(10 * time.Millisecond) {
			if permit := ctl.TryAcquire(another(req)); permit != nil {
				permit.Done(delivered(time.Millisecond))
				sent++
			}
		}
		require.InDelta(t, 100, sent, 2)
	})
}

// The limit of a host counts, too.
func TestTryAcquireAtAHost(t *testing.T) {
	t.Parallel()
	ctl := New(Config{MaxInFlightPerHost: 1})
	first, second := newRequest(), newRequest()
	first.Host, second.Host = "one.example:443", "one.example:443"
	permit := ctl.TryAcquire(first)
	require.NotNil(t, permit)
	require.Nil(t, ctl.TryAcquire(second))
	permit.Done(delivered(time.Millisecond))
	permit = ctl.TryAcquire(second)
	require.NotNil(t, permit)
	permit.Cancel()
}

// Near says what Acquire is going to answer: a permit, at once or after a short wait, or something else.
func TestNear(t *testing.T) {
	t.Parallel()
	quick := func(t *testing.T, ctl *Controller, req Request) {
		t.Helper()
		admit(t, ctl, another(req)).Done(delivered(time.Millisecond))
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, ctl *Controller, req Request)
		near   bool
	}{
		"nothing is known": {func(*testing.T, *Controller, Request) {}, false},
		"idle":             {quick, true},
		"all slots are taken for a moment": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			quick(t, ctl, req)
			for range 2 {
				permit := admit(t, ctl, another(req))
				time.AfterFunc(10*time.Millisecond, func() { permit.Done(delivered(10 * time.Millisecond)) })
			}
		}, true},
		"all slots are taken by requests that hang": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			quick(t, ctl, req)
			admit(t, ctl, another(req))
			admit(t, ctl, another(req))
			elapse(5 * time.Second)
		}, false},
		"asked to wait": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			admit(t, ctl, another(req)).Done(Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true, PaceFor: time.Minute})
		}, false},
		"it comes before its reservation, and slots are free": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			deferred(t, ctl, req)
		}, true},
		"its reservation has come": {func(t *testing.T, ctl *Controller, req Request) {
			t.Helper()
			elapse(deferred(t, ctl, req))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				req.Limits = Limits{MaxInFlight: 2, Rate: 2000}
				test.before(t, ctl, req)
				_, near := ctl.Near(req)
				require.Equal(t, test.near, near)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				require.Equal(t, test.near || name == "nothing is known", ctl.Acquire(ctx, req).Permit != nil)
			})
		})
	}
}

// deferred has a delivery deferred while all slots are taken, and returns how long.
func deferred(t *testing.T, ctl *Controller, req Request) time.Duration {
	t.Helper()
	first, second := admit(t, ctl, another(req)), admit(t, ctl, another(req))
	elapse(5 * time.Second)
	decision := ctl.Acquire(canceled(), req)
	require.True(t, decision.Deferred())
	first.Done(delivered(time.Millisecond))
	second.Done(delivered(time.Millisecond))
	return decision.Wait
}
