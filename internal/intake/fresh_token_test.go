package intake

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

var noSum [sha256.Size]byte

func newRef() webhook.Ref {
	event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
	return webhook.Ref{
		DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint, TenantID: "acme", EventType: "order.paid",
	}
}

// R2: a token is given once, however many take it at the same time.
func TestFreshTokenIsTakenOnce(t *testing.T) {
	t.Parallel()
	f := newFresh(time.Now)
	id, sum := newRef(), sha256.Sum256([]byte("{}"))
	created := time.Now()
	f.put(id, []byte("{}"), sum, created, created)
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if got, ok := f.Take(id); ok {
				taken.Add(1)
				if string(got.Payload) != "{}" || got.SHA256 != sum || got.CreatedAt != created {
					t.Errorf("the content is %q of %s", got.Payload, got.CreatedAt)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, int32(1), taken.Load())
	require.Zero(t, f.bytes)
}

// A token is of one delivery: who names another tenant or type for it does not get the payload, and does not take it away.
func TestFreshTokenIsOfItsDelivery(t *testing.T) {
	t.Parallel()
	f, of, now := newFresh(time.Now), newRef(), time.Now()
	f.put(of, []byte("{}"), noSum, now, now)
	for _, change := range []func(*webhook.Ref){
		func(r *webhook.Ref) { r.TenantID = "other" },
		func(r *webhook.Ref) { r.EventType = "order.refunded" },
		func(r *webhook.Ref) { r.EndpointID = webhook.NewEndpointID() },
		func(r *webhook.Ref) { r.EventID = webhook.NewEventID() },
	} {
		other := of
		change(&other)
		_, ok := f.Take(other)
		require.False(t, ok)
	}
	_, ok := f.Take(of)
	require.True(t, ok)
}

// R2: a token is valid for tokenLife from when its delivery was stored, not from when it was put.
func TestFreshTokenExpires(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	f := newFresh(func() time.Time { return now })
	early, late, latest := newRef(), newRef(), newRef()
	f.put(early, []byte("1"), noSum, start, start)
	f.put(late, []byte("2"), noSum, start, start)

	now = start.Add(tokenLife - time.Nanosecond)
	_, ok := f.Take(early)
	require.True(t, ok)
	f.put(latest, []byte("3"), noSum, start.Add(time.Second), start.Add(time.Second))

	now = start.Add(tokenLife)
	content, ok := f.Take(late)
	require.False(t, ok)
	require.Zero(t, content)

	f.put(newRef(), []byte("4"), noSum, start, start)
	require.Equal(t, 1, f.bytes, "a commit that took longer than a token's life leaves none")
	now = start.Add(tokenLife + time.Second)
	_, ok = f.Take(latest)
	require.False(t, ok)
	require.Zero(t, f.bytes)
}

// The payloads in memory are bounded, and those of expired tokens are dropped.
func TestFreshTokensAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newFresh(func() time.Time { return now })
	payload := make([]byte, webhook.DefaultMaxPayload)
	fit := maxFreshBytes / len(payload)
	ids := make([]webhook.Ref, fit+1)
	for i := range ids {
		ids[i] = newRef()
		f.put(ids[i], payload, noSum, now, now)
	}
	require.Equal(t, maxFreshBytes, f.bytes)
	_, ok := f.Take(ids[fit])
	require.False(t, ok, "there was no room: its attempt needs a claim")

	_, ok = f.Take(ids[0])
	require.True(t, ok)
	f.put(ids[fit], payload, noSum, now, now)
	_, ok = f.Take(ids[fit])
	require.True(t, ok, "what was taken made room")

	now = now.Add(tokenLife)
	last := newRef()
	f.put(last, []byte("x"), noSum, now, now)
	require.Equal(t, 1, f.bytes)
	require.Len(t, f.byID, 1)
	require.Equal(t, []webhook.DeliveryID{last.DeliveryID}, f.order)
}
