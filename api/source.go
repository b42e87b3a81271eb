package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwardedFor is the header in which proxies pass on whom a request came from: each
// appends the address that it saw.
const forwardedFor = "X-Forwarded-For"

// sourceAddress is where a request came from: the peer of its connection, or, behind a
// trusted proxy, the last address in X-Forwarded-For that is none of these. What stands
// before that one was written by somebody who is not trusted. Without a usable address
// in the header it is the proxy's own. The zero Addr when nothing is known.
func sourceAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	source := plain(peer.Addr())
	entries := strings.Split(strings.Join(r.Header[forwardedFor], ","), ",")
	for _, entry := range slices.Backward(entries) {
		if !contains(trusted, source) {
			break
		}
		before, ok := parseForwarded(strings.TrimSpace(entry))
		if !ok {
			break
		}
		source = before
	}
	return source
}

// parseForwarded reads an address as proxies write it: with or without a port or brackets.
func parseForwarded(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return plain(a), true
	}
	if a, err := netip.ParseAddrPort(text); err == nil {
		return plain(a.Addr()), true
	}
	return netip.Addr{}, false
}

// plain is the address without what only this machine understands of it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func contains(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}
