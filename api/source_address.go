package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwardedFor is the header to which each proxy appends the address of its peer.
const forwardedFor = "X-Forwarded-For"

// sourceAddress returns the source address of a request: the peer of its connection or, behind a
// trusted proxy, the last address in X-Forwarded-For that is not a trusted proxy. Addresses before
// that one are not trustworthy. If the header has no usable address, the result is the proxy's
// own. It is the zero Addr if nothing is known.
func sourceAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	source, known := peerAddress(r)
	if !known {
		return netip.Addr{}
	}
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

// peerAddress is the address of the connection's peer.
func peerAddress(r *http.Request) (netip.Addr, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return plain(peer.Addr()), err == nil
}

// parseForwarded parses an address in X-Forwarded-For, with or without a port and brackets.
func parseForwarded(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return plain(a), true
	}
	if a, err := netip.ParseAddrPort(text); err == nil {
		return plain(a.Addr()), true
	}
	return netip.Addr{}, false
}

// plain returns the address without IPv4 mapping and zone.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func contains(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}
