package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwardedFor is the header to which each proxy appends the address of its peer.
const forwardedFor = "X-Forwarded-For"

// trustedProxies are the networks of proxies that say where a request came from.
type trustedProxies []netip.Prefix

// SourceAddress is the source of a request from outside, as the audit log has it: the peer of its connection or, behind a
// trusted proxy, the last address in X-Forwarded-For that is not a trusted proxy. Addresses before
// that one are not trustworthy. If the header has no usable address, the result is the proxy's
// own. It is the zero Addr if nothing is known.
func (p trustedProxies) SourceAddress(r *http.Request) netip.Addr {
	source, known := peerAddress(r)
	if !known {
		return netip.Addr{}
	}
	entries := strings.Split(strings.Join(r.Header[forwardedFor], ","), ",")
	for _, entry := range slices.Backward(entries) {
		if !p.contains(source) {
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

func (p trustedProxies) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(of netip.Prefix) bool { return of.Contains(a) })
}

// Secure reports whether a request came over TLS, to this process or to a trusted proxy.
func (p trustedProxies) Secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	peer, known := peerAddress(r)
	return known && p.contains(peer) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// NetworkOf is what counts as one source: an address of IPv4, a network of IPv6. Addresses that are not known
// count as one.
func NetworkOf(source netip.Addr) netip.Prefix {
	bits := 32
	if source.Is6() {
		bits = 64
	}
	network, _ := source.Prefix(bits)
	return network
}
