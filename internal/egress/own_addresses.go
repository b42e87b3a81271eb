package egress

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ownAddrsAge is how long a list of this machine's addresses is used before it is
// refreshed.
const ownAddrsAge = 5 * time.Second

// ownAddrs caches this machine's addresses, without those of loopback.
type ownAddrs struct {
	list func() ([]netip.Addr, error)

	mu    sync.Mutex
	known map[netip.Addr]struct{} // nil before the first list
	until time.Time
}

// has reports whether the address is this machine's. Until a first list succeeds, it
// reports true for every address. When a later refresh fails, the previous list remains in
// use.
func (o *ownAddrs) has(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !now.Before(o.until) {
		_ = o.refresh(now)
	}
	_, own := o.known[ip]
	return own || o.known == nil
}

// learn refreshes the list.
func (o *ownAddrs) learn() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refresh(time.Now())
}

// refresh replaces the list. The caller holds the lock.
func (o *ownAddrs) refresh(now time.Time) error {
	all, err := o.list()
	if err != nil {
		if o.known != nil {
			o.until = now.Add(ownAddrsAge)
		}
		return fmt.Errorf("list the addresses of this machine: %w", err)
	}
	o.known, o.until = make(map[netip.Addr]struct{}, len(all)), now.Add(ownAddrsAge)
	for _, addr := range all {
		o.known[addr.WithZone("").Unmap()] = struct{}{}
	}
	return nil
}

// interfaceAddrs returns the addresses of all network interfaces.
func interfaceAddrs() ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err //nolint:wrapcheck // refresh wraps it
	}
	var all []netip.Addr
	for _, network := range networks {
		if ip, ok := network.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ip.IP); ok {
				all = append(all, addr.Unmap())
			}
		}
	}
	return all, nil
}
