package egress

import (
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// connections counts the distinct connections over which requests came.
func connections(receiver *receivertest.Receiver) int {
	seen := make(map[string]bool)
	for _, request := range receiver.Requests() {
		seen[request.RemoteAddr] = true
	}
	return len(seen)
}

func TestConnectionsAreKeptPerEndpoint(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{})
	send := func(endpoint string, version int64, path string) {
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: endpoint, Version: version, URL: receiver.URL() + path}), retry.FailureNone, 200)
	}
	send("ep_1", 1, "/a")
	send("ep_1", 1, "/a")
	send("ep_1", 1, "/b")
	require.Equal(t, 1, connections(receiver))
	send("ep_2", 1, "/a")
	require.Equal(t, 2, connections(receiver), "another endpoint, another connection")
	send("ep_1", 2, "/a")
	require.Equal(t, 3, connections(receiver), "another version, another connection")
	require.Equal(t, 2, c.pool.len(), "and the earlier one is closed")
	send("", 1, "/a")
	send("", 1, "/a")
	require.Equal(t, 5, connections(receiver), "no endpoint, nothing kept")
	require.Equal(t, 2, c.pool.len())
}

// A response that arrives after the endpoint has changed does not put the old connection
// back into the pool.
func TestChangedUnderARequest(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{})
	receiver.Hold()
	var sender sync.WaitGroup
	sender.Go(func() { c.Send(t.Context(), Request{EndpointID: "ep_1", Version: 1, URL: receiver.URL()}) })
	require.NoError(t, receiver.WaitHeld(t.Context(), 1))
	put(t, c, "ep_1", 2, DefaultMaxIdle)
	receiver.Release()
	sender.Wait()
	require.Equal(t, 1, c.pool.len())
	require.EqualValues(t, 2, takeAny(t, c, "ep_1").id.version)
}

func TestMaxIdlePerEndpoint(t *testing.T) {
	t.Parallel()
	for asked, kept := range map[int]int{-1: 0, 0: 4, 1: 1, 3: 3, 10: 4} {
		receiver := receivertest.New(t)
		receiver.Hold()
		c := setup(t, Config{})
		var senders sync.WaitGroup
		for range 4 {
			senders.Go(func() { c.Send(t.Context(), Request{EndpointID: "ep_1", URL: receiver.URL(), MaxIdle: asked}) })
		}
		require.NoError(t, receiver.WaitHeld(t.Context(), 4))
		receiver.Release()
		senders.Wait()
		require.Equal(t, kept, c.pool.len(), "MaxIdle %d", asked)
	}
}

// The connections are bounded for any number of endpoints, endpoints without a connection
// take no memory, and the connection that was idle longest is closed first.
func TestMaxIdleOverall(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{MaxIdle: 3})
	for i := range 10 {
		c.Send(t.Context(), Request{EndpointID: "ep_" + strconv.Itoa(i), URL: receiver.URL()})
	}
	require.Equal(t, 3, c.pool.len())
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	require.Len(t, c.pool.byID, 3)
	for _, endpoint := range []string{"ep_7", "ep_8", "ep_9"} {
		require.Contains(t, c.pool.byID, endpoint)
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{IdleTimeout: 20 * time.Millisecond})
	cn := put(t, c, "ep_1", 1, 1)
	hold(cn.tcp) // until the sweep closes it
	require.Zero(t, c.pool.len())
	hold(put(t, c, "ep_1", 1, 1).tcp) // the next one starts the timer again
	require.Zero(t, c.pool.len())
}

func TestOldConnectionsAreNotUsed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, age := range map[string]func(*conn){
		"idle too long": func(cn *conn) { cn.until = now.Add(-time.Nanosecond) },
		"open too long": func(cn *conn) { cn.created = now.Add(-maxConnectionAge) },
		"closed":        func(cn *conn) { cn.discard() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setup(t, Config{})
			cn := put(t, c, "ep_1", 1, 1)
			age(cn)
			require.Nil(t, c.pool.take(cn.id, now, now.Add(time.Minute)))
			require.Zero(t, c.pool.len())
		})
	}
}

func TestKeepAliveHint(t *testing.T) {
	t.Parallel()
	const fallback = 30 * time.Second
	c := setup(t, Config{IdleTimeout: fallback})
	for value, want := range map[string]time.Duration{
		"":                 fallback,
		"timeout=5":        4 * time.Second,
		"timeout=5, max=9": 4 * time.Second,
		"max=9, Timeout=5": 4 * time.Second,
		"timeout=1":        0,
		"timeout=0":        time.Nanosecond - time.Second,
		"timeout=600":      fallback,
		"timeout=99999999": fallback,
		"timeout=-5":       fallback,
		"timeout":          fallback,
		"max=9":            fallback,
	} {
		require.Equal(t, want, c.idleTime(&responseHead{keepAlive: keepAliveHint(value)}), value)
	}
	receiver := receivertest.New(t)
	receiver.Default(receivertest.Step{Header: map[string]string{"Keep-Alive": "timeout=1"}})
	requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: receiver.URL()}), retry.FailureNone, 200)
	require.Zero(t, c.pool.len())
}

// An idle connection is dropped a little earlier than the receiver was seen to drop one.
func TestIdleTimeIsLearned(t *testing.T) {
	t.Parallel()
	const most = 30 * time.Second
	p, now := newPool(1, most), time.Now()
	saw := func(after time.Duration) {
		p.learnIdleTime(&conn{id: identity{endpoint: "ep_1"}, idleSince: now.Add(-after)}, now)
	}
	require.Equal(t, most, p.idleTime("ep_1", most, now))
	saw(5 * time.Second)
	require.Equal(t, 4500*time.Millisecond, p.idleTime("ep_1", most, now))
	saw(10 * time.Second)
	require.Equal(t, 4500*time.Millisecond, p.idleTime("ep_1", most, now), "the least counts")
	saw(time.Second)
	require.Equal(t, 900*time.Millisecond, p.idleTime("ep_1", most, now))
	saw(time.Millisecond)
	require.Equal(t, minIdleDrop*9/10, p.idleTime("ep_1", most, now), "a restart is not believed")
	require.Equal(t, time.Millisecond, p.idleTime("ep_1", time.Millisecond, now))
	require.Equal(t, most, p.idleTime("ep_2", most, now), "another endpoint")
	now = now.Add(idleDropMemory)
	require.Equal(t, most, p.idleTime("ep_1", most, now), "for a time")
	saw(2 * time.Second)
	require.Equal(t, 1800*time.Millisecond, p.idleTime("ep_1", most, now))
	for i := range 2 * maxIdleDrops {
		p.learnIdleTime(&conn{id: identity{endpoint: strconv.Itoa(i)}}, now)
	}
	require.LessOrEqual(t, p.drops.Len(), maxIdleDrops)
}

// The end of a kept connection under a request closes those that have been idle for longer, and is learned, as is one that is
// found closed.
func TestEndOfAKeptConnection(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{})
	request := Request{EndpointID: "ep_1", URL: receiver.URL()}
	receiver.Hold()
	var senders sync.WaitGroup
	for range 3 {
		senders.Go(func() { c.Send(t.Context(), request) })
	}
	require.NoError(t, receiver.WaitHeld(t.Context(), 3))
	receiver.Release()
	senders.Wait()
	require.Equal(t, 3, c.pool.len())
	receiver.Script("/", receivertest.Step{Drop: true})
	require.True(t, c.Send(t.Context(), request).ReusedEnded)
	require.Zero(t, c.pool.len())
	now := time.Now()
	require.Less(t, c.pool.idleTime("ep_1", time.Hour, now), time.Minute)
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)

	c = setup(t, Config{})
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	receiver.Stop()
	require.Eventually(t, func() bool { return !keptAlive(c, "ep_1") }, 10*time.Second, time.Millisecond)
	require.NotZero(t, c.Send(t.Context(), request).Answer.Failure)
	require.Less(t, c.pool.idleTime("ep_1", time.Hour, time.Now()), time.Minute)
}

func TestClose(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{})
	request := Request{EndpointID: "ep_1", URL: receiver.URL()}
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	require.Equal(t, 1, c.pool.len())
	c.Close()
	require.Zero(t, c.pool.len())
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	require.Zero(t, c.pool.len(), "nothing is kept after Close")
	c.Close()
}

func TestManySendersShareAClient(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{MaxIdle: 5})
	var senders sync.WaitGroup
	for i := range 16 {
		senders.Go(func() {
			for n := range 50 {
				id := strconv.Itoa(i) + "/" + strconv.Itoa(n)
				r := c.Send(t.Context(), Request{
					EndpointID: "ep_" + strconv.Itoa(n%7), Version: int64(n % 3), URL: receiver.URL(),
					Header: [][2]string{{"webhook-id", id}}, Body: []byte(id), MaxIdle: 2,
				})
				if r.Answer.Status != 200 {
					t.Error(r.Err)
				}
			}
		})
	}
	senders.Wait()
	seen := make(map[string]bool)
	for _, request := range receiver.Requests() {
		require.False(t, seen[request.WebhookID()], "sent twice: %s", request.WebhookID())
		seen[request.WebhookID()] = true
		require.Equal(t, request.WebhookID(), string(request.Body))
	}
	require.Len(t, seen, 16*50)
	require.LessOrEqual(t, c.pool.len(), 5)
}

// put keeps a new connection to a silent receiver.
func put(t *testing.T, c *Client, endpoint string, version int64, perEndpoint int) *conn {
	t.Helper()
	silent := answering(t, "")
	target, err := c.config.Guard.target("http://"+silent, netip.AddrPort{})
	require.NoError(t, err)
	cn, _, err := c.dial(t.Context(), time.Now().Add(time.Minute), target, new(webhook.Times))
	require.NoError(t, err)
	cn.id = identity{endpoint: endpoint, version: version}
	cn.until = time.Now().Add(time.Minute)
	c.pool.put(cn, perEndpoint, time.Now())
	return cn
}
