package console

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// A tenant leaves places to others, and all tenants together some to operators.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	p := newPlaces(16)
	fill := func(share string) (n int, leave func()) {
		for {
			left, ok := p.enter(t.Context(), share, 0)
			if !ok {
				return n, leave
			}
			n, leave = n+1, left
		}
	}
	n, leave := fill("acme")
	require.Equal(t, 6, n)
	n, _ = fill("other")
	require.Equal(t, 3, n)
	n, _ = fill(ofVisitors)
	require.Equal(t, 2, n)
	for i := range 20 {
		_, _ = p.enter(t.Context(), string(rune('a'+i)), 0)
	}
	n, _ = fill(ofOperators)
	require.Equal(t, 4, n)
	leave()
	leave() // no more than once
	n, _ = fill(ofOperators)
	require.Equal(t, 1, n)
}

// Sessions are unlimited, so a tenant's streams are bounded, too.
func TestStreamsAreShared(t *testing.T) {
	t.Parallel()
	s := newStreams()
	open := func(of webhook.ConsoleSession, sessions int) (n int) {
		for i := range sessions {
			for {
				if _, ok := s.enter(t.Context(), session{ConsoleSession: of, token: of.TenantID + string(rune(i))}); !ok {
					break
				}
				n++
			}
		}
		return n
	}
	require.Equal(t, 38, open(webhook.ConsoleSession{TenantID: "acme"}, 100))
	require.Equal(t, maxSessionStreams, open(webhook.ConsoleSession{TenantID: "other"}, 1))
	require.Equal(t, maxStreams-38-maxSessionStreams, open(webhook.ConsoleSession{Access: webhook.AccessKey}, 100))
}

// Only failures count, and nobody gets its attempts back by those of many other addresses.
func TestAttempts(t *testing.T) {
	t.Parallel()
	a, now := newLogInLimiter[netip.Prefix](guessBurst), time.Now()
	bad := api.NetworkOf(netip.MustParseAddr("192.0.2.1"))
	for range guessBurst {
		require.True(t, a.allow(bad, now))
		require.True(t, a.allow(bad, now), "it has not failed")
		a.count(bad, now)
	}
	require.False(t, a.allow(bad, now))
	network := netip.MustParseAddr("2001:db8::").As16()
	for i := range 3 * maxSources {
		network[4], network[5] = byte(i>>8), byte(i)
		network[6] = byte(i >> 16)
		a.count(api.NetworkOf(netip.AddrFrom16(network)), now.Add(time.Duration(i)*time.Microsecond))
	}
	require.LessOrEqual(t, len(a.of), maxSources+1)
	require.False(t, a.allow(bad, now))
	require.False(t, a.allow(api.NetworkOf(netip.MustParseAddr("192.0.2.2")), now), "those for which there was no room count as one")
	later := now.Add(guessBurst * logInEvery)
	a.count(api.NetworkOf(netip.MustParseAddr("192.0.2.3")), later)
	require.Less(t, len(a.of), 3)
	require.True(t, a.allow(bad, later))
}
