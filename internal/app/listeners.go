package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/postgres"
)

const (
	// learnEvery is how often names are looked up again, and the addresses of other processes read.
	learnEvery = 15 * time.Second
	// learnTime bounds each of both.
	learnTime = 3 * time.Second
)

// listeners are where this installation listens, as far as this process can know: its own listeners, PostgreSQL, Temporal, and
// where other processes have said that they listen for each other. No request to a receiver may go there.
type listeners struct {
	bound []netip.AddrPort                        // known for certain
	named []string                                // hosts with ports, of which the addresses may change
	peers func(context.Context) ([]string, error) // likewise, of other processes

	known atomic.Pointer[[]netip.AddrPort]
}

// ownListeners returns where this installation listens. All listeners of this process are open by now.
func (a *App) ownListeners(ctx context.Context) (*listeners, error) {
	l := &listeners{named: []string{hostOf(a.options.Temporal.HostPort), a.options.Config.LaneAddress}}
	hosts, err := postgres.Hosts(a.options.Config.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_DATABASE_URL: %w", err)
	}
	l.named = append(l.named, hosts...)
	for _, at := range a.options.Listeners {
		l.bound = append(l.bound, plain(at))
	}
	for _, own := range []net.Listener{a.adminListen, a.apiListener, a.laneListener} {
		if own == nil {
			continue
		}
		if at, err := netip.ParseAddrPort(own.Addr().String()); err == nil {
			l.bound = append(l.bound, plain(at))
		}
	}
	l.peers = func(ctx context.Context) ([]string, error) { return a.store.Lanes.Addresses(ctx, !a.overAll) }
	l.learn(ctx)
	return l, nil
}

// list is where the installation listens, as it was learned last.
func (l *listeners) list() []netip.AddrPort { return *l.known.Load() }

// watch keeps the list up to date until ctx ends.
func (l *listeners) watch(ctx context.Context) {
	tick := time.NewTicker(learnEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.learn(ctx)
		}
	}
}

// learn brings the list up to date. What cannot be found out now stays as it was.
func (l *listeners) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	peers, err := l.peers(ctx)
	complete := err == nil
	all := slices.Clone(l.bound)
	for _, name := range slices.Concat(l.named, peers) {
		found, err := lookUp(ctx, name)
		all, complete = append(all, found...), complete && err == nil
	}
	if before := l.known.Load(); !complete && before != nil {
		all = append(all, *before...)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	all = slices.Compact(all)
	l.known.Store(&all)
}

// lookUp returns the addresses of a host with a port. "" has none.
func lookUp(ctx context.Context, hostPort string) ([]netip.AddrPort, error) {
	if hostPort == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", hostPort, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", hostPort, err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", hostPort, err)
	}
	all := make([]netip.AddrPort, len(addresses))
	for i, ip := range addresses {
		all[i] = plain(netip.AddrPortFrom(ip, uint16(number)))
	}
	return all, nil
}

// plain returns an address in the form in which connections are checked.
func plain(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// hostOf is the host and port of a target of gRPC: "dns:///temporal:7233" is "temporal:7233".
func hostOf(target string) string {
	_, path, resolved := strings.Cut(target, "://")
	if !resolved {
		return target
	}
	_, host, _ := strings.Cut(path, "/")
	return host
}
