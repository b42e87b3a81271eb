package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
)

const (
	// familyGrace is how long the addresses of one family wait for those of the other. It is
	// the resolution delay of RFC 8305, section 3.
	familyGrace = 50 * time.Millisecond

	// The resolver does not tell how long an answer is valid, so answers and failures are
	// kept for a fixed time.
	keepAnswers  = 10 * time.Second
	keepFailures = time.Second

	maxNames          = 10_000 // that are kept
	maxNamesPerTenant = 1_000
	maxFound          = 32 // addresses of a name and family that are kept
)

// names looks up hosts of URLs. A host of a URL is an absolute name: the search domains of
// the system never apply, because one with a wildcard would lead the request to another
// machine.
//
// Results are kept for a short time, apart for each tenant, so that no tenant can tell
// which names others use. It is safe for concurrent use.
type names struct {
	resolver *net.Resolver
	files    *net.Resolver // the hosts file alone

	keepAnswers, keepFailures time.Duration // tests override them

	mu       sync.Mutex
	byTenant *cache.Map[string, *cache.Map[string, foundName]]
}

// foundName is the result of a look-up.
type foundName struct {
	addrs []netip.Addr
	err   error
	until time.Time
}

// newNames returns names that are looked up by the resolver, nil for the system's hosts file
// and name servers.
func newNames(resolver *net.Resolver) *names {
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true, Dial: dialNameServer}
	}
	return &names{
		resolver: resolver,
		files: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("the hosts file is enough")
		}},
		keepAnswers: keepAnswers, keepFailures: keepFailures,
		byTenant: cache.NewMap[string, *cache.Map[string, foundName]](maxNames),
	}
}

// dialNameServer closes the socket when the look-up is abandoned. Otherwise the resolver
// would wait for an answer until its own timeout.
func dialNameServer(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return conn, err //nolint:wrapcheck // the resolver inspects it
}

// lookup returns the addresses of a host that is a name, IPv6 and IPv4 in turn and in each
// family as the resolver has ordered them. The error is a *net.DNSError.
func (n *names) lookup(ctx context.Context, tenant, host string) ([]netip.Addr, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if found, ok := n.known(tenant, name, time.Now()); ok {
		return found.addrs, found.err
	}
	addrs, err := n.resolve(ctx, name)
	if ctx.Err() == nil { // else the request ended, not the look-up
		n.keep(tenant, name, foundName{addrs: addrs, err: err}, time.Now())
	}
	return addrs, err
}

func (n *names) known(tenant, name string, now time.Time) (foundName, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, ok := n.byTenant.Get(tenant, now)
	if !ok {
		return foundName{}, false
	}
	found, ok := own.Get(name, now)
	return found, ok && now.Before(found.until)
}

// keep keeps the result. When there is no room, the names of a tenant that has used none of
// its own for long go first.
func (n *names) keep(tenant, name string, found foundName, now time.Time) {
	found.until = now.Add(n.keepAnswers)
	if found.err != nil {
		found.until = now.Add(n.keepFailures)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	own, ok := n.byTenant.Get(tenant, now)
	if !ok {
		own = cache.NewMap[string, foundName](maxNamesPerTenant)
	}
	own.Put(name, found, now)
	n.byTenant.PutWeighing(tenant, own, own.Len(), now)
}

// resolve looks a name up. The hosts file has names without a dot as they are, while the
// resolver would look for them with the final dot that makes a name absolute.
func (n *names) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if !strings.Contains(name, ".") {
		if addrs, err := bothFamilies(ctx, n.files, name); err == nil {
			return addrs, nil
		}
	}
	return bothFamilies(ctx, n.resolver, name+".")
}

// bothFamilies looks up the IPv4 and the IPv6 addresses side by side. When one of the two
// has addresses, it waits for the other for familyGrace only: some name servers never answer
// a question for IPv6.
func bothFamilies(ctx context.Context, r *net.Resolver, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		network string
		addrs   []netip.Addr
		err     error
	}
	answers := make(chan answer, 2)
	for _, network := range []string{"ip4", "ip6"} {
		go func() {
			addrs, err := r.LookupNetIP(ctx, network, name)
			answers <- answer{network, addrs[:min(len(addrs), maxFound)], err}
		}()
	}
	var v4, v6 []netip.Addr
	var failure error
	grace := time.NewTimer(time.Hour) // longer than any request
	defer grace.Stop()
	for range 2 {
		select {
		case got := <-answers:
			switch {
			case got.err != nil && (failure == nil || !isNone(got.err)):
				failure = got.err
			case got.network == "ip4":
				v4 = got.addrs
			default:
				v6 = got.addrs
			}
		case <-grace.C:
		}
		if len(v4)+len(v6) > 0 {
			grace.Reset(familyGrace)
		}
	}
	switch {
	case len(v4)+len(v6) > 0:
		return alternately(v6, v4), nil
	case failure == nil || isNone(failure):
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	default:
		return nil, failure
	}
}

// isNone reports whether the error of a look-up says that the name has no address of the
// family. For a name that the hosts file has in the other family it is a *net.AddrError.
func isNone(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	_, ok := errors.AsType[*net.AddrError](err)
	return ok
}

// alternately merges two lists, beginning with the first one (RFC 8305, section 4). An
// address that is both an IPv4 and an IPv6 one is treated as IPv4, as a dial would.
func alternately(a, b []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(a)+len(b))
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			all = append(all, a[i].Unmap())
		}
		if i < len(b) {
			all = append(all, b[i].Unmap())
		}
	}
	return all
}
