package egress

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// DeniedError lists every reason why a URL or an address is refused, each with the
// operator's setting that would allow it, if there is one. Its text is short, is meant for
// the person who configured the endpoint, and contains neither the URL nor the address that
// a name resolved to: that would let a tenant map a private network.
type DeniedError struct {
	Reasons []string

	addr netip.AddrPort // refused at the dial; for the operator's log only
}

func (e *DeniedError) Error() string { return strings.Join(e.Reasons, "; ") }

func denied(reasons ...string) error { return &DeniedError{Reasons: reasons} }

// GuardConfig is the operator's policy for destinations. The zero value is the
// strictest: https to public addresses on ports 443 and 80.
type GuardConfig struct {
	// AllowHTTP allows http:// URLs. Defaults to false.
	AllowHTTP bool

	// AllowedCIDRs are ranges that are allowed although they are not public, such as
	// 10.0.0.0/8 for receivers in the operator's own network. An IPv4-mapped IPv6 range has
	// no effect: such addresses are always refused. This machine's own addresses except
	// loopback, and those of metadata services, are only allowed by a range of exactly that
	// address. Defaults to none.
	AllowedCIDRs []netip.Prefix

	// DeniedCIDRs are ranges that are refused whatever else allows them. Defaults to none.
	DeniedCIDRs []netip.Prefix

	// OwnAddrs lists this machine's addresses. Defaults to those of its interfaces.
	OwnAddrs func() ([]netip.Addr, error)

	// ExtraPorts are destination ports besides 443 and 80. Defaults to none.
	ExtraPorts []uint16

	// AnyPort allows every port. Defaults to false.
	AnyPort bool

	// DeniedHosts are names that are refused. Defaults to none.
	DeniedHosts HostList

	// Names refuses, if set, names whose addresses this process does not see, because the proxy looks them up: names
	// without a dot, the names of local networks, and those of Own. NoProxy lists the hosts that are looked up here all the same.
	Names *NamesConfig

	// Listeners lists where the installation itself listens. No request goes there, whatever else is
	// allowed. An unspecified address stands for all of this machine's. Called for every dial, so it
	// must be quick. Defaults to none.
	Listeners func() []netip.AddrPort
}

// NamesConfig is what is refused by name.
type NamesConfig struct {
	Own     []string // of the installation and of the proxy; "" is ignored
	NoProxy HostList
}

// Guard decides where a request may go. It is safe for concurrent use.
//
// It checks addresses on every dial, after the name was resolved, so a name whose addresses
// change between check and use (DNS rebinding) gains nothing. The list of ranges is
// code.dny.dev/ssrf's, which follows the IANA special-purpose registries, and what
// addrReasons adds to it.
type Guard struct {
	allowHTTP bool
	anyPort   bool
	ports     []uint16
	addresses *ssrf.Guardian
	exact     []netip.Addr   // allowed by a range of one address
	denied    []netip.Prefix // by the operator
	hosts     HostList       // denied
	names     *NamesConfig   // may be nil
	reserved  []netip.Addr
	own       *ownAddrs
	listeners func() []netip.AddrPort // may be nil
}

// NewGuard returns a guard for the policy.
func NewGuard(config GuardConfig) *Guard {
	g := &Guard{
		allowHTTP: config.AllowHTTP,
		anyPort:   config.AnyPort,
		ports:     append([]uint16{443, 80}, config.ExtraPorts...),
		reserved:  reservedAddrs(),
		own:       &ownAddrs{list: config.OwnAddrs},
		listeners: config.Listeners,
		hosts:     config.DeniedHosts,
		names:     config.Names,
	}
	if g.own.list == nil {
		g.own.list = interfaceAddrs
	}
	var v4, v6 []netip.Prefix
	for _, prefix := range config.AllowedCIDRs {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.Masked())
		} else {
			v6 = append(v6, prefix.Masked())
		}
		if prefix.IsSingleIP() {
			g.exact = append(g.exact, prefix.Addr())
		}
	}
	for _, prefix := range config.DeniedCIDRs {
		g.denied = append(g.denied, prefix.Masked())
	}
	g.addresses = ssrf.New(
		ssrf.WithAnyNetwork(),
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
	)
	return g
}

// reservedAddrs are the addresses of cloud metadata services, which give a machine's
// secrets to any process on it, and the two unspecified addresses. A wider allowed range
// does not include them.
func reservedAddrs() []netip.Addr {
	var all []netip.Addr
	for _, text := range []string{
		"0.0.0.0", "::", // this machine
		"169.254.169.254",               // AWS, Azure, Google, Oracle, OpenStack and most others
		"fd00:ec2::254", "fd20:ce::254", // the same over IPv6: AWS, Google
		"fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe", // Oracle, OpenStack
		"169.254.170.2", "169.254.170.23", "fd00:ec2::23", // AWS: credentials of containers
		"168.63.129.16",                // Azure's wire server, in no registry of special addresses
		"100.100.100.200",              // Alibaba
		"169.254.0.23",                 // Tencent
		"169.254.42.42", "fd00:42::42", // Scaleway
		"192.0.0.192", // Oracle, the older one
	} {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// Why no request may go to an address, for the owner of an endpoint.
const (
	allowedCIDRs    = "EVERPOST_ALLOWED_CIDRS can allow it"
	reasonNotPublic = "the address is not public (" + allowedCIDRs + ")"
	reasonReserved  = "the address is not public (" + allowedCIDRs + ", as a range of exactly this address)"
	reasonOwn       = "the address is the sending machine's own (" + allowedCIDRs + ", as a range of exactly this address)"
	reasonDenied    = "the operator refuses the address (EVERPOST_DENIED_CIDRS)"
)

// LearnOwnAddrs lists this machine's addresses for the first time, to report a failure at
// the start. Until a list succeeds, the guard treats every address as this machine's own.
func (g *Guard) LearnOwnAddrs() error { return g.own.learn() }

// CheckAddr returns a *DeniedError when no request may go to the address.
func (g *Guard) CheckAddr(addr netip.AddrPort) error {
	reasons := slices.Concat(g.addrReasons(addr.Addr()), g.portReasons(addr.Port()))
	if len(reasons) == 0 {
		reasons = g.listenerReasons(addr)
	}
	if len(reasons) == 0 {
		return nil
	}
	return &DeniedError{Reasons: reasons, addr: addr}
}

// addrReasons returns why no request may go to the address, nil when it may.
//
// Zoned and IPv4-mapped addresses are refused before the operator's ranges are checked: a
// zone is in no range (netip.Prefix.Contains), and a mapped address would be checked
// against IPv6 ranges but reached over IPv4.
//
// An address that is not public is called that also when it is this machine's own or in a
// denied range: tenants see the reasons, may try any address, and must learn nothing about
// a network that they cannot reach.
func (g *Guard) addrReasons(ip netip.Addr) []string {
	switch {
	case !ip.IsValid():
		return []string{"the address is not valid"}
	case ip.Zone() != "":
		return []string{"an address must not have a zone"}
	case ip.Is4In6():
		return []string{"an IPv4 address must not be written as an IPv6 one"}
	case slices.Contains(g.exact, ip):
	case slices.Contains(g.reserved, ip):
		return []string{reasonReserved}
	case g.addresses.SafeAddr(ip) != nil:
		return []string{reasonNotPublic}
	case g.own.has(ip):
		return []string{reasonOwn}
	}
	return g.deniedReasons(ip)
}

func (g *Guard) portReasons(port uint16) []string {
	switch {
	case port == 0:
		return []string{"the port is not valid"}
	case g.anyPort, slices.Contains(g.ports, port):
		return nil
	default:
		return []string{"port " + strconv.Itoa(int(port)) + " is not allowed (EVERPOST_EXTRA_PORTS can allow it)"}
	}
}

// deniedReasons refuses an address in the operator's denied ranges. For an exempt address no
// other check applies.
func (g *Guard) deniedReasons(ip netip.Addr) []string {
	if slices.ContainsFunc(g.denied, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return []string{reasonDenied}
	}
	return nil
}

// control is the check of one dial, in the form of net.Dialer.ControlContext: it runs when
// the socket exists and before it connects. exempt is allowed unless the operator denies
// it; the zero value exempts nothing.
func (g *Guard) control(exempt netip.AddrPort) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return denied("only TCP is allowed")
		}
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return denied("the address is not valid")
		}
		if exempt.IsValid() && addr == exempt {
			if reasons := g.deniedReasons(addr.Addr()); reasons != nil {
				return &DeniedError{Reasons: reasons, addr: addr}
			}
			return nil
		}
		return g.CheckAddr(addr)
	}
}
