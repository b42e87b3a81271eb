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
	headers := map[string]string{"X-Region": "eu"}
	f.put(id, webhook.Content{Payload: []byte("{}"), SHA256: sum, CreatedAt: created, Headers: headers}, created)
	require.Equal(t, len("{}")+len("X-Regioneu"), f.bytes)
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if got, ok := f.Take(id); ok {
				taken.Add(1)
				if string(got.Payload) != "{}" || got.SHA256 != sum || got.CreatedAt != created || got.Headers["X-Region"] != "eu" {
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
	f.put(of, webhook.Content{Payload: []byte("{}"), CreatedAt: now}, now)
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

// R2: a token is valid for tokenLife from when it was put, and never longer than tokenEnd from when storing its delivery began.
func TestFreshTokenExpires(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, c := range map[string]struct {
		commit, ask time.Duration // since storing began
		valid       bool
	}{
		"at once":                    {0, 0, true},
		"just in time":               {0, tokenLife - 1, true},
		"at its end":                 {0, tokenLife, false},
		"a long commit, at once":     {2 * time.Second, 2 * time.Second, true},
		"a long commit, in time":     {1500 * time.Millisecond, 1500*time.Millisecond + tokenLife - 1, true},
		"a long commit, at its end":  {1500 * time.Millisecond, 1500*time.Millisecond + tokenLife, false},
		"a longer one, in time":      {2500 * time.Millisecond, tokenEnd - 1, true},
		"a longer one, at its end":   {2500 * time.Millisecond, tokenEnd, false},
		"a commit as long as tokens": {tokenEnd, tokenEnd, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start.Add(c.commit)
			f, id := newFresh(func() time.Time { return now }), newRef()
			f.put(id, webhook.Content{Payload: []byte("1"), CreatedAt: start}, start)
			now = start.Add(c.ask)
			content, ok := f.Take(id)
			require.Equal(t, c.valid, ok)
			require.Equal(t, c.valid, content.Payload != nil)
			require.Zero(t, f.bytes)
		})
	}
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
		f.put(ids[i], webhook.Content{Payload: payload, CreatedAt: now}, now)
	}
	require.Equal(t, maxFreshBytes, f.bytes)
	_, ok := f.Take(ids[fit])
	require.False(t, ok, "there was no room: its attempt needs a claim")

	_, ok = f.Take(ids[0])
	require.True(t, ok)
	f.put(ids[fit], webhook.Content{Payload: payload, CreatedAt: now}, now)
	_, ok = f.Take(ids[fit])
	require.True(t, ok, "what was taken made room")

	now = now.Add(tokenLife)
	last := newRef()
	f.put(last, webhook.Content{Payload: []byte("x"), CreatedAt: now}, now)
	require.Equal(t, 1, f.bytes)
	require.Len(t, f.byID, 1)
	require.Equal(t, []webhook.DeliveryID{last.DeliveryID}, f.order)
}
