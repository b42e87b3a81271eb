package egress

import (
	"context"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// deniedRanges must be denied, whatever the library denies.
var deniedRanges = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	"::/128", "::1/128", "::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "5f00::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "::/3", "4000::/2", "8000::/1",
}

func TestDeniedRanges(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardConfig{})
	for _, text := range deniedRanges {
		prefix := netip.MustParsePrefix(text)
		for _, addr := range []netip.Addr{first(prefix), middle(prefix), last(prefix)} {
			requireRefused(t, g, addr, text)
		}
	}
}

// Each neighbour of a denied range that no other range covers is allowed, so the ranges are
// not wider than the list.
func TestNeighboursOfDeniedRangesAreAllowed(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardConfig{})
	allowed := 0
	for _, text := range deniedRanges {
		prefix := netip.MustParsePrefix(text)
		for _, addr := range []netip.Addr{first(prefix).Prev(), last(prefix).Next()} {
			if !addr.IsValid() || listed(addr) {
				continue
			}
			allowed++
			require.NoError(t, g.CheckAddr(netip.AddrPortFrom(addr, 443)), "%s beside %s", addr, text)
		}
	}
	require.Greater(t, allowed, 30)
}

// An address is denied if and only if the list contains it.
func TestGuardMatchesTheList(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardConfig{})
	rapid.Check(t, func(rt *rapid.T) {
		var addr netip.Addr
		if rapid.Bool().Draw(rt, "v4") {
			addr = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(rt, "bytes")))
		} else {
			bytes := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "bytes")
			if rapid.Bool().Draw(rt, "global") {
				bytes[0] = 0x20 | bytes[0]&0x1f
			}
			addr = netip.AddrFrom16([16]byte(bytes))
		}
		err := g.CheckAddr(netip.AddrPortFrom(addr, 443))
		require.Equal(rt, listed(addr), err != nil, "%s: %v", addr, err)
	})
}

// requireRefused requires that the address is refused as not public; addresses that need an
// exact range have their own reason.
func requireRefused(t *testing.T, g *Guard, addr netip.Addr, about string) {
	t.Helper()
	reason := notPublic
	switch {
	case slices.Contains(reservedAddrs(), addr):
		reason = onlyExactly
	case addr.Is4In6():
		reason = mapped
	}
	requireDenied(t, g.CheckAddr(netip.AddrPortFrom(addr, 443)), reason, "%s in %s", addr, about)
}

// Reasons of a denial.
const (
	notPublic     = "the address is not public (EVERPOST_ALLOWED_CIDRS can allow it)"
	onlyExactly   = "the address is not public (EVERPOST_ALLOWED_CIDRS can allow it, as a range of exactly this address)"
	ownAddress    = "the address is the sending machine's own (EVERPOST_ALLOWED_CIDRS can allow it, as a range of exactly this address)"
	byOperator    = "the operator refuses the address (EVERPOST_DENIED_CIDRS)"
	mapped        = "an IPv4 address must not be written as an IPv6 one"
	onlyHTTPS     = "only https is allowed (EVERPOST_ALLOW_HTTP=true allows http)"
	notPlain      = "must not contain blanks, control characters or characters beyond ASCII after the host (write them as %20, %C3%BC, …)"
	brokenPercent = "has a % that is not followed by two hexadecimal digits (write it as %25); is not a valid URL"
)

func portRefused(port string) string {
	return "port " + port + " is not allowed (EVERPOST_EXTRA_PORTS can allow it)"
}

func listed(addr netip.Addr) bool {
	for _, text := range deniedRanges {
		if netip.MustParsePrefix(text).Contains(addr) {
			return true
		}
	}
	return false
}

func TestCheckAddr(t *testing.T) {
	t.Parallel()
	strict := NewGuard(GuardConfig{})
	for _, c := range []struct{ addr, reason string }{
		{"93.184.215.14:443", ""},
		{"93.184.215.14:80", ""},
		{"[2606:4700::1]:443", ""},
		{"93.184.215.14:8443", portRefused("8443")},
		{"93.184.215.14:0", "the port is not valid"},
		{"[::ffff:93.184.215.14]:443", mapped},
		{"[::ffff:127.0.0.1]:443", mapped},
		{"[64:ff9b::7f00:1]:443", notPublic},
		{"[64:ff9b::5db8:d70e]:443", notPublic},
		{"[2002:7f00:1::]:443", notPublic},
		{"[2001:0:7f00:1::]:443", notPublic},
		{"[2606:4700::1%eth0]:443", "an address must not have a zone"},
		{"[fe80::1%1]:443", "an address must not have a zone"},
	} {
		requireDenied(t, strict.CheckAddr(netip.MustParseAddrPort(c.addr)), c.reason, c.addr)
	}
	requireDenied(t, strict.CheckAddr(netip.AddrPort{}), "the address is not valid; the port is not valid")
	requireDenied(t, strict.CheckAddr(netip.MustParseAddrPort("10.0.0.1:22")), notPublic+"; "+portRefused("22"))
}

func TestAllowedCIDRs(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardConfig{
		AllowedCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.1.2.3/16"), // host bits do not matter
			netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("168.63.129.16/32"),
		},
		ExtraPorts: []uint16{8443},
	})
	for _, c := range []struct{ addr, reason string }{
		{"10.1.255.255:443", ""},
		{"10.2.0.0:443", notPublic},
		{"[fd12::1]:8443", ""},
		{"[fd12::1]:8444", portRefused("8444")},
		{"168.63.129.16:80", ""},
		{"[fd12::1%eth0]:443", "an address must not have a zone"},
		{"[::ffff:127.0.0.1]:443", mapped}, // even with ::/0
	} {
		requireDenied(t, g.CheckAddr(netip.MustParseAddrPort(c.addr)), c.reason, c.addr)
	}
	anyPort := NewGuard(GuardConfig{AnyPort: true})
	require.NoError(t, anyPort.CheckAddr(netip.MustParseAddrPort("93.184.215.14:1")))
	requireDenied(t, anyPort.CheckAddr(netip.MustParseAddrPort("93.184.215.14:0")), "the port is not valid")
}

func TestDialCheck(t *testing.T) {
	t.Parallel()
	exempt := netip.MustParseAddrPort("127.0.0.1:9")
	for _, c := range []struct {
		network, address string
		exempt           netip.AddrPort
		reason           string
	}{
		{"tcp4", "93.184.215.14:443", netip.AddrPort{}, ""},
		{"tcp6", "[2606:4700::1]:443", netip.AddrPort{}, ""},
		{"udp4", "93.184.215.14:443", netip.AddrPort{}, "only TCP is allowed"},
		{"unix", "/run/postgresql", netip.AddrPort{}, "only TCP is allowed"},
		{"tcp4", "name:443", netip.AddrPort{}, "the address is not valid"},
		{"tcp4", "127.0.0.1:9", netip.AddrPort{}, notPublic},
		{"tcp4", "127.0.0.1:9", exempt, ""},
		{"tcp4", "127.0.0.1:80", exempt, notPublic},
		{"tcp4", "127.0.0.2:9", exempt, notPublic},
	} {
		check := NewGuard(GuardConfig{AnyPort: true}).control(c.exempt)
		err := check(context.Background(), c.network, c.address, nil)
		requireDenied(t, err, c.reason, "%s %s", c.network, c.address)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	strict := NewGuard(GuardConfig{ExtraPorts: []uint16{8443}})
	const notValid = "the host is not valid (names beyond ASCII are written in their xn-- form)"
	for _, c := range []struct{ url, reason string }{
		{"https://example.com", ""},
		{"https://example.com/hook?token=a%20b&x=1", ""},
		{"HTTPS://EXAMPLE.com:443/", ""},
		{"https://example.com.:80/", ""},
		{"https://hooks_1.example.com:8443/", ""},
		{"https://93.184.215.14/", ""},
		{"https://[2606:4700::1]:8443/", ""},
		{"https://127.1/", ""},      // a name: the dial check sees what it resolves to
		{"https://2130706433/", ""}, // likewise
		{"https://0x7f000001/", ""}, // likewise
		{"https://" + strings.Repeat("a.", 126) + "a/", ""},
		{"https://example.com/?x HTTP/1.1", notPlain},
		{"https://example.com/?x%20HTTP/1.1", ""},
		{"https://example.com/a b", notPlain},
		{"https://example.com/\tb", notPlain},
		{"https://example.com?a=\r\nX-Injected: 1", notPlain},
		{"https://example.com/\x7f", notPlain},
		{"https://example.com/\x00", notPlain},
		{"https://example.com/bücher", notPlain},
		{"https://example.com/?q=ü", notPlain},
		{"https://example.com/?q=\xff", notPlain},
		{"https://example.com/b%C3%BCcher?q=%C3%BC", ""},
		{"https://example.com/%zz ", notPlain + "; " + brokenPercent},
		{"https://localhost/", notPublic},
		{"https://LOCALHOST./", notPublic},
		{"https://hooks.localhost/", notPublic},
		{"https://localhost.example/", ""},
		{"http://localhost:3000/", onlyHTTPS + "; " + notPublic + "; " + portRefused("3000")},
		{"http://u:p@10.0.0.1:8080/a b?c#d", strings.Join([]string{
			notPlain, onlyHTTPS, notPublic, "must not contain a user name or password", "must not contain a fragment", portRefused("8080"),
		}, "; ")},
		{"ftp://127.0.0.1:x", "is not a valid URL"},
		{"ftp://a..b:0/", "only https is allowed; " + notValid + "; the port is not valid"},
		{"http://example.com/", onlyHTTPS},
		{"http://127.0.0.1/", onlyHTTPS + "; " + notPublic},
		{"ftp://example.com/", "only https is allowed"},
		{"file:///etc/passwd", "only https is allowed; the host is missing"},
		{"", "must begin with https://"},
		{"example.com/hook", "must begin with https://"},
		{"//example.com/hook", "must begin with https://"},
		{"not a url", "must begin with https://"},
		{"https:example.com", "the host is missing"},
		{"https:///hook", "the host is missing"},
		{"https://:443/", "the host is missing"},
		{"https://u:p@example.com/", "must not contain a user name or password"},
		{"https://u@example.com/", "must not contain a user name or password"},
		{"https://@example.com/", "must not contain a user name or password"},
		{"https://example.com/#top", "must not contain a fragment"},
		{"https://example.com/#", "must not contain a fragment"},
		{"https://example.com:8080/", portRefused("8080")},
		{"https://93.184.215.14:22/", portRefused("22")},
		{"https://example.com:/", "the port is not valid"},
		{"https://example.com:0/", "the port is not valid"},
		{"https://example.com:65536/", "the port is not valid"},
		{"https://example.com:x/", "is not a valid URL"},
		{"https://exa mple.com/", "is not a valid URL"},
		{"https://example.com/\n", notPlain},
		{" https://example.com/", "is not a valid URL"},
		{"https://example.com/%zz", brokenPercent}, {"https://example.com/%", brokenPercent}, {"https://example.com/a%2", brokenPercent},
		{"https://example.com/?a=%zz", ""},
		{"https://127.0.0.1/", notPublic},
		{"https://168.63.129.16/", onlyExactly},
		{"https://[::1]/", notPublic},
		{"https://[::ffff:127.0.0.1]/", mapped},
		{"https://[::ffff:7f00:1]/", mapped},
		{"https://[64:ff9b::7f00:1]/", notPublic},
		{"https://[fe80::1%25eth0]/", "an address must not have a zone"},
		{"https://[2606:4700::1%25eth0]/", "an address must not have a zone"},
		{"https://bücher.example/", notValid},
		{"https://127。0。0。1/", notValid},
		{"https://①②⑦.0.0.1/", notValid},
		{"https://a..b/", notValid},
		{"https://.example.com/", notValid},
		{"https://-a.example.com/", notValid},
		{"https://a!b.example.com/", notValid},
		{"https://a%2eb/", notValid},
		{"https://" + strings.Repeat("a", 64) + ".com/", notValid},
		{"https://" + strings.Repeat("a.", 127) + "aa/", notValid},
		{"https://example.com/" + strings.Repeat("a", webhook.MaxURLBytes-len("https://example.com/")), ""},
		{"https://example.com/" + strings.Repeat("a", webhook.MaxURLBytes-len("https://example.com/")+1), "must not be longer than 2048 bytes"},
	} {
		_, err := strict.CheckURL(c.url)
		if c.reason == notValid && strings.Contains(c.url, "%2e") {
			require.Error(t, err, c.url) // newer parsers refuse it themselves
			continue
		}
		requireDenied(t, err, c.reason, c.url)
	}

	lax := NewGuard(GuardConfig{AllowHTTP: true})
	_, err := lax.CheckURL("http://example.com/")
	require.NoError(t, err)
	_, err = lax.CheckURL("ftp://example.com/")
	requireDenied(t, err, "only https and http are allowed")
}

func TestExemptedAddress(t *testing.T) {
	t.Parallel()
	g := NewGuard(GuardConfig{})
	exempt := netip.MustParseAddrPort("127.0.0.1:4711")
	for _, c := range []struct {
		url    string
		passes bool
	}{
		{"http://127.0.0.1:4711/hook", true},
		{"https://127.0.0.1:4711/hook", true},
		{"http://127.0.0.1:4712/hook", false},
		{"http://127.0.0.2:4711/hook", false},
		{"http://localhost:4711/hook", false},
		{"http://[::ffff:127.0.0.1]:4711/hook", false},
		{"ftp://127.0.0.1:4711/hook", false},
		{"http://u@127.0.0.1:4711/hook", false},
		{"http://127.0.0.1:4711/hook?x y", false},
		{"http://example.com/hook", false},
	} {
		target, err := g.target(c.url, exempt)
		require.Equal(t, c.passes, err == nil, c.url)
		require.Equal(t, c.passes, target.exempt.IsValid(), c.url)
		_, err = g.CheckURL(c.url)
		require.Error(t, err, "without the exemption: %s", c.url)
	}
	other, err := g.target("https://example.com/", exempt)
	require.NoError(t, err)
	require.False(t, other.exempt.IsValid(), "a name must not inherit the exemption")
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/hook", "http://127.0.0.1:80/", "https://[::1%25eth0]:443/?a#b", "https://u:p@h/", "https://a:1@b:2/",
		"https://example.com\\@127.0.0.1/", "https:/\\x", "https://[::ffff:1.2.3.4]/", "https://0/", "https://%31%32%37.0.0.1/",
		"https://a/?x HTTP/1.1", "https://a/\u00fc",
	} {
		f.Add(seed)
	}
	strict := NewGuard(GuardConfig{})
	anywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	lax := NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: anywhere})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := strict.CheckURL(raw)
		if err != nil {
			require.Nil(t, u)
			var refusal *DeniedError
			require.ErrorAs(t, err, &refusal)
			require.LessOrEqual(t, len(err.Error()), 700)
			return
		}
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		for _, c := range []byte(u.RequestURI()) {
			require.True(t, '!' <= c && c <= '~', "%q", u.RequestURI())
		}
		require.True(t, u.Port() == "" || strings.TrimLeft(u.Port(), "0") == "443" || strings.TrimLeft(u.Port(), "0") == "80", u.Port())
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.False(t, listed(addr), addr)
			require.Empty(t, addr.Zone())
		}
		again, err := strict.CheckURL(u.String())
		if len(u.String()) <= webhook.MaxURLBytes { // escaping may have made it longer
			require.NoError(t, err, u.String())
			require.Equal(t, u.Host, again.Host)
			require.Equal(t, u.RequestURI(), again.RequestURI())
		}
		_, err = lax.CheckURL(raw)
		require.NoError(t, err, "what is allowed to all is allowed when more is")
	})
}

func requireDenied(t *testing.T, err error, reason string, about ...any) {
	t.Helper()
	if reason == "" {
		require.NoError(t, err, about...)
		return
	}
	var refusal *DeniedError
	require.ErrorAs(t, err, &refusal, about...)
	require.Equal(t, reason, refusal.Error(), about...)
}

func first(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

func middle(p netip.Prefix) netip.Addr {
	low, high := new(big.Int).SetBytes(first(p).AsSlice()), new(big.Int).SetBytes(last(p).AsSlice())
	sum := low.Add(low, high).Rsh(low, 1)
	addr, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, first(p).BitLen()/8)))
	return addr
}
