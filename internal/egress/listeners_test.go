package egress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// No request goes to where the installation listens, whatever the operator allows: by address, by localhost, and by what a name resolves to.
func TestOwnListenersAreRefused(t *testing.T) {
	t.Parallel()
	const own, other = "192.0.2.7", "192.0.2.8"
	var listening []netip.AddrPort
	g := NewGuard(GuardConfig{
		AllowHTTP: true, AnyPort: true,
		AllowedCIDRs: []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::/128"),
			netip.MustParsePrefix(own + "/32"), netip.MustParsePrefix(other + "/32"),
		},
		OwnAddrs:  func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(own)}, nil },
		Listeners: func() []netip.AddrPort { return listening },
	})
	for _, c := range []struct {
		listener string
		refused  []string
		allowed  []string
	}{
		{"127.0.0.1:81", []string{"127.0.0.1:81", "0.0.0.0:81", "[::]:81"}, []string{"127.0.0.1:82", "127.0.0.2:81", "[::1]:81", own + ":81"}},
		{"0.0.0.0:81", []string{"127.0.0.1:81", "127.0.0.2:81", "[::1]:81", "0.0.0.0:81", own + ":81"}, []string{"127.0.0.1:82", other + ":81"}},
		{"[::]:81", []string{"127.0.0.1:81", "[::1]:81", "[::]:81", own + ":81"}, []string{other + ":81"}},
		{own + ":81", []string{own + ":81", "0.0.0.0:81"}, []string{"127.0.0.1:81", other + ":81"}},
		{other + ":81", []string{other + ":81"}, []string{"127.0.0.1:81", own + ":81", other + ":80"}},
	} {
		listening = []netip.AddrPort{netip.MustParseAddrPort(c.listener)}
		for _, addr := range c.refused {
			requireDenied(t, g.CheckAddr(netip.MustParseAddrPort(addr)), reasonListener, "%s, at %s", c.listener, addr)
			_, err := g.CheckURL("http://" + addr + "/hook")
			requireDenied(t, err, reasonListener, "%s, at %s", c.listener, addr)
			dial := g.control(netip.AddrPort{})
			network := "tcp4"
			if netip.MustParseAddrPort(addr).Addr().Is6() {
				network = "tcp6"
			}
			requireDenied(t, dial(t.Context(), network, addr, nil), reasonListener, addr)
		}
		for _, addr := range c.allowed {
			require.NoError(t, g.CheckAddr(netip.MustParseAddrPort(addr)), "%s, at %s", c.listener, addr)
			_, err := g.CheckURL("http://" + addr + "/hook")
			require.NoError(t, err, "%s, at %s", c.listener, addr)
		}
	}
	for listener, refused := range map[string]bool{"127.0.0.1:81": true, "[::1]:81": true, "[::]:81": true, own + ":81": false} {
		listening = []netip.AddrPort{netip.MustParseAddrPort(listener)}
		for _, host := range []string{"localhost", "LOCALHOST.", "a.localhost"} {
			_, err := g.CheckURL("http://" + host + ":81/")
			require.Equal(t, refused, err != nil, "%s, by %s", listener, host)
		}
	}
}

// That something listens at an address is only said to those who may send there otherwise.
func TestOwnListenersAreNotFound(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("127.0.0.1:81")
	g := NewGuard(GuardConfig{Listeners: func() []netip.AddrPort { return []netip.AddrPort{at} }})
	requireDenied(t, g.CheckAddr(at), notPublic+"; "+portRefused("81"))
}

// The demonstration's receiver is one of this process's listeners, and the only one that is allowed.
func TestTheDemonstrationIsAllowed(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("127.0.0.1:81")
	g := NewGuard(GuardConfig{Listeners: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:82")} }})
	require.NoError(t, g.control(at)(t.Context(), "tcp4", at.String(), nil))
	require.Error(t, g.control(at)(t.Context(), "tcp4", "127.0.0.1:82", nil))
}
