package egress

import "net/netip"

const reasonListener = "Everpost itself listens there (nothing can allow it)"

// listenerReasons refuses an address on which the installation itself listens: a request would come from
// this machine, which some of these listeners trust. It is asked last, about addresses that are allowed
// otherwise, so that nobody learns from it where the installation listens.
func (g *Guard) listenerReasons(addr netip.AddrPort) []string {
	if g.listeners == nil {
		return nil
	}
	for _, listener := range g.listeners() {
		if listener.Port() == addr.Port() && g.reaches(addr.Addr(), listener.Addr()) {
			return []string{reasonListener}
		}
	}
	return nil
}

// reaches reports whether a connection to an address may reach a listener on the same port.
func (g *Guard) reaches(addr, listener netip.Addr) bool {
	local := addr.IsLoopback() || addr.IsUnspecified() || g.own.has(addr)
	switch {
	case addr == listener:
		return true
	case listener.IsUnspecified():
		return local
	case addr.IsUnspecified(): // stands for this machine
		return listener.IsLoopback() || g.own.has(listener)
	default:
		return false
	}
}
