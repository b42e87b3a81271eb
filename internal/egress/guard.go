package egress

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"code.dny.dev/ssrf"
)

// DeniedError says why a URL or an address is refused. Its text is short, meant
// for the person who configured the endpoint, and names neither the URL nor the
// address a name resolved to: that would let a tenant map a private network.
type DeniedError struct {
	Reason string
}

func (e *DeniedError) Error() string { return e.Reason }

func denied(reason string) error { return &DeniedError{Reason: reason} }

// GuardConfig is the operator's policy for destinations. The zero value is the
// strictest: https to public addresses on ports 443 and 80.
type GuardConfig struct {
	// AllowHTTP lets http:// URLs through. Defaults to false.
	AllowHTTP bool

	// AllowedCIDRs are ranges that are let through although they are not public,
	// such as 10.0.0.0/8 for receivers in the operator's own network. An IPv4-mapped
	// IPv6 range has no effect: such addresses are always refused. Defaults to none.
	AllowedCIDRs []netip.Prefix

	// ExtraPorts are destination ports besides 443 and 80. Defaults to none.
	ExtraPorts []uint16

	// AnyPort lets every port through. Defaults to false.
	AnyPort bool
}

// Guard decides where a request may go. It is safe for concurrent use.
//
// Addresses are checked on every dial, after the name was resolved, so a name that
// changes its answer between check and use (DNS rebinding) gains nothing. The list
// of ranges is code.dny.dev/ssrf's, which follows the IANA special-purpose
// registries, and what CheckAddr adds to it.
type Guard struct {
	allowHTTP bool
	anyPort   bool
	ports     []uint16
	addresses *ssrf.Guardian
}

// NewGuard returns a guard for the policy.
func NewGuard(config GuardConfig) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range config.AllowedCIDRs {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.Masked())
		} else {
			v6 = append(v6, prefix.Masked())
		}
	}
	return &Guard{
		allowHTTP: config.AllowHTTP,
		anyPort:   config.AnyPort,
		ports:     append([]uint16{443, 80}, config.ExtraPorts...),
		addresses: ssrf.New(
			ssrf.WithAnyNetwork(),
			ssrf.WithAnyPort(),
			ssrf.WithAllowedV4Prefixes(v4...),
			ssrf.WithAllowedV6Prefixes(v6...),
			// The wire server of Azure's virtual machines hands out credentials from an
			// address that no registry lists as special.
			ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
		),
	}
}

// CheckAddr returns a *DeniedError when no request may go to the address.
//
// Zoned and IPv4-mapped addresses are refused before the operator's ranges are
// looked at: a zone is in no range (netip.Prefix.Contains), and a mapped address
// would be judged by IPv6 ranges but reached over IPv4.
func (g *Guard) CheckAddr(addr netip.AddrPort) error {
	ip := addr.Addr()
	switch {
	case !ip.IsValid():
		return denied("the address is not valid")
	case ip.Zone() != "":
		return denied("an address must not have a zone")
	case ip.Is4In6():
		return denied("the address is not public")
	}
	if err := g.checkPort(addr.Port()); err != nil {
		return err
	}
	if err := g.addresses.SafeAddr(ip); err != nil {
		return denied("the address is not public")
	}
	return nil
}

func (g *Guard) checkPort(port uint16) error {
	switch {
	case port == 0:
		return denied("the port is not valid")
	case g.anyPort, slices.Contains(g.ports, port):
		return nil
	default:
		return denied("port " + strconv.Itoa(int(port)) + " is not allowed")
	}
}

// control is the check of one dial, in the form net.Dialer.ControlContext wants:
// it runs once the socket exists and before it connects. exempt is let through
// as it is; the zero value exempts nothing.
func (g *Guard) control(exempt netip.AddrPort, onAllowed func()) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return denied("only TCP is allowed")
		}
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return denied("the address is not valid")
		}
		if !exempt.IsValid() || addr != exempt {
			if err := g.CheckAddr(addr); err != nil {
				return err
			}
		}
		onAllowed()
		return nil
	}
}
