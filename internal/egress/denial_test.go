package egress

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func noAddrs() ([]netip.Addr, error) { return nil, nil }

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// A name that resolves to a denied address looks to its tenant in every respect like one
// that does not exist: directly, through a proxy, and as a token server's name.
func TestRefusedNamesDoNotExist(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	guard := GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: prefixes("127.0.0.1/32", "10.20.0.0/16"), DeniedCIDRs: prefixes("10.20.9.0/24"),
		OwnAddrs: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.20.0.7")}, nil }}
	p := proxyTo(t, "127.0.0.1:1", always("hang"))
	for refused, why := range map[string]string{
		"10.0.0.1": notPublic, "169.254.169.254": onlyExactly, "fd00:ec2::254": onlyExactly, "::1": notPublic, "127.0.0.2": notPublic,
		"10.20.0.7": ownAddress, "10.20.9.1": byOperator, "0.0.0.0": onlyExactly,
	} {
		for way, send := range map[string]func(*Client, string) Response{
			"as a receiver": func(c *Client, host string) Response {
				return c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + host + secretPath, Timeout: patience})
			},
			"as a token server": func(c *Client, host string) Response {
				auth := webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: "http://" + host + secretPath, ClientID: "id", ClientSecret: "s3cr3t"}
				return c.Send(t.Context(), Request{URL: receiver.URL(), Timeout: patience, Auth: auth})
			},
		} {
			for _, proxied := range []bool{false, true} {
				t.Run(refused+" "+way+map[bool]string{true: ", through a proxy"}[proxied], func(t *testing.T) {
					t.Parallel()
					var log bytes.Buffer
					config := Config{
						Guard: NewGuard(guard), Logger: slog.New(slog.NewTextHandler(&log, nil)),
						Resolver: resolver(t, func(name string, _ int) ([]netip.Addr, dnsmessage.RCode) {
							if strings.HasPrefix(name, "there.") {
								return []netip.Addr{netip.MustParseAddr(refused)}, dnsmessage.RCodeSuccess
							}
							return nil, dnsmessage.RCodeNameError
						}),
					}
					if proxied {
						config.Proxy = p.url
					}
					c := New(config)
					t.Cleanup(c.Close)
					missing := send(c, "missing.example.")
					require.Empty(t, log.String())
					there := send(c, "there.example.")
					said := log.String()
					for _, r := range []*Response{&missing, &there} {
						require.GreaterOrEqual(t, r.Latency, minNotFoundTime, "a name server's own time does not show")
						r.Latency, r.Answer.ReceivedAt, r.Times.Names = 0, time.Time{}, 0
					}
					require.Equal(t, missing, there)
					require.Contains(t, there.Err, "dns_not_found: no such host")
					require.Equal(t, retry.Classify(missing.Answer, retry.Default()), retry.Classify(there.Answer, retry.Default()))

					require.Equal(t, 1, strings.Count(said, "\n"), said)
					require.Contains(t, said, " host=there.example. ")
					require.Contains(t, said, why)
					require.Contains(t, said, netip.AddrPortFrom(netip.MustParseAddr(refused), 80).String())
					require.NotContains(t, said, "s3cr3t")
					send(c, "there.example.")
					require.Equal(t, said, log.String(), "one line an hour")
				})
			}
		}
	}
	t.Cleanup(func() {
		require.Empty(t, p.requests())
		require.Zero(t, receiver.Count())
	})
}

// The operator's denied ranges override everything: a public address, an exactly allowed
// one, loopback, and the demonstration's receiver.
func TestDeniedCIDRs(t *testing.T) {
	t.Parallel()
	config := GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: prefixes("127.0.0.0/8", "10.0.0.1/32", "10.1.0.0/16", "fd00::/8"), OwnAddrs: noAddrs}
	tried := []string{"93.184.215.14", "10.0.0.1", "10.1.2.3", "127.0.0.1", "2606:4700::1", "fd00::1"}
	for _, text := range tried {
		require.NoError(t, NewGuard(config).CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(text), 80)), text)
	}
	config.DeniedCIDRs = prefixes("93.184.215.9/24", "10.0.0.0/15", "127.0.0.1/32", "2606:4700::/32", "fd00::1/128", "192.168.0.0/16")
	g := NewGuard(config)
	for _, text := range tried {
		addr := netip.AddrPortFrom(netip.MustParseAddr(text), 80)
		requireDenied(t, g.CheckAddr(addr), byOperator, text)
		_, err := g.target("http://"+addr.String()+"/", addr)
		requireDenied(t, err, byOperator, "%s is exempt", text)
		requireDenied(t, g.control(addr)(t.Context(), "tcp4", addr.String(), nil), byOperator, "%s is exempt", text)
	}
	for _, text := range []string{"93.184.216.14", "127.0.0.2", "fd00::2"} {
		require.NoError(t, g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(text), 80)), text)
	}
	requireDenied(t, g.CheckAddr(netip.MustParseAddrPort("192.168.0.1:80")), notPublic, "a private address is not reported as denied by the operator")
	everything := NewGuard(GuardConfig{DeniedCIDRs: prefixes("0.0.0.0/0", "::/0")})
	requireDenied(t, everything.CheckAddr(netip.MustParseAddrPort("93.184.215.14:443")), byOperator)
}

// Metadata services and this machine's own addresses are allowed by a range of exactly the
// address only.
func TestExactRanges(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("93.184.215.14"),
		netip.MustParseAddr("::ffff:10.1.2.4"), netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("192.168.7.7"),
	}
	config := GuardConfig{
		AllowedCIDRs: prefixes("127.0.0.0/8", "::1/128", "10.0.0.0/8", "169.254.0.0/16", "fd00::/8", "fe80::/10", "100.100.0.0/16",
			"192.0.0.0/24", "168.0.0.0/6", "0.0.0.0/1", "::/1"),
		OwnAddrs: func() ([]netip.Addr, error) { return own, nil },
	}
	g := NewGuard(config)
	check := func(g *Guard, addr string) error {
		return g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(addr), 443))
	}
	for _, text := range []string{"127.0.0.1", "::1", "127.9.9.9", "10.1.2.5", "169.254.1.1", "fd00::1", "fe80::2", "93.184.215.15"} {
		require.NoError(t, check(g, text), text)
	}
	onlyOwn := []string{"10.1.2.3", "93.184.215.14", "10.1.2.4", "2606:4700::1", "fe80::1"}
	for _, text := range onlyOwn {
		requireDenied(t, check(g, text), ownAddress, text)
	}
	requireDenied(t, check(g, "192.168.7.7"), notPublic, "a private address is not reported as own")
	for _, addr := range reservedAddrs() {
		requireDenied(t, check(g, addr.String()), onlyExactly, addr)
	}
	for _, text := range onlyOwn {
		addr := netip.MustParseAddr(text)
		config.AllowedCIDRs = append(config.AllowedCIDRs, netip.PrefixFrom(addr, addr.BitLen()))
	}
	config.AllowedCIDRs = append(config.AllowedCIDRs, everywhere()[2:]...)
	g = NewGuard(config)
	for _, text := range onlyOwn {
		require.NoError(t, check(g, text), text)
	}
	for _, addr := range reservedAddrs() {
		require.NoError(t, check(g, addr.String()), addr)
	}
	require.NoError(t, check(NewGuard(GuardConfig{}), "93.184.215.14"), "this machine has it not")
}

// The addresses of a machine may change while it runs.
func TestOwnAddressesAreRefreshed(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.1.2.3")
	var now []netip.Addr
	var failed error
	g := NewGuard(GuardConfig{AllowedCIDRs: prefixes("10.0.0.0/8"), OwnAddrs: func() ([]netip.Addr, error) { return now, failed }})
	check := func() error { return g.CheckAddr(netip.AddrPortFrom(addr, 443)) }
	expire := func() { g.own.until = time.Time{} }

	failed = errors.New("not today")
	requireDenied(t, check(), ownAddress, "nothing is known: every address may be own")
	require.ErrorContains(t, g.LearnOwnAddrs(), "list the addresses of this machine: not today")
	failed = nil
	require.NoError(t, g.LearnOwnAddrs())
	require.NoError(t, check())
	now = append(now, addr)
	require.NoError(t, check(), "the list is not refreshed each time")
	expire()
	requireDenied(t, check(), ownAddress)
	failed, now = errors.New("not today"), nil
	expire()
	requireDenied(t, check(), ownAddress, "the last list holds")
	failed = nil
	expire()
	require.NoError(t, check())

	really, err := interfaceAddrs()
	require.NoError(t, err)
	require.Contains(t, really, netip.MustParseAddr("127.0.0.1"), "as every machine has")
}

// The dial check with the addresses that this machine really has.
func TestOwnAddressesAtTheSocket(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, ok)
	all, err := interfaceAddrs()
	require.NoError(t, err)
	tried := 0
	for _, addr := range all {
		if addr.IsLoopback() || addr.IsLinkLocalUnicast() {
			continue
		}
		tried++
		config := GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen()-1)}}
		send := func() []Response {
			c := setup(t, Config{Guard: NewGuard(config), Resolver: naming(t, []netip.Addr{addr})})
			var both []Response
			for _, host := range []string{literal(addr), nameOf(0)} {
				both = append(both, c.Send(t.Context(), Request{URL: "http://" + host + ":" + e.port, Timeout: patience}))
			}
			return both
		}
		both := send()
		require.Equal(t, "denied_address: "+ownAddress, both[0].Err)
		require.Equal(t, "dns_not_found: no such host", both[1].Err)
		e.sync(t)
		require.Empty(t, e.at())
		config.AllowedCIDRs = []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}
		for _, r := range send() {
			requireFailure(t, r, retry.FailureNone, 200)
		}
		e.sync(t)
		require.Equal(t, map[netip.Addr]int{addr: 2}, e.at())
		e.forget(addr)
	}
	if tried == 0 {
		t.Skip("this machine has no other address than those of loopback")
	}
}

// A tenant whose DNS has a new name for each event does not flood the operator's log.
func TestRefusedNamesDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r, logger := newDenialLog(), slog.New(slog.NewTextHandler(&log, nil))
	denied := &DeniedError{addr: netip.MustParseAddrPort("10.0.0.1:443")}
	for i := range 1000 {
		r.log(logger, target{endpoint: "ep", host: strconv.Itoa(i) + ".example."}, denied)
	}
	require.Equal(t, denialBurst, strings.Count(log.String(), "\n"))
	r.window = r.window.Add(-denialWindow)
	log.Reset()
	r.log(logger, target{endpoint: "ep", host: "last.example."}, denied)
	require.Contains(t, log.String(), "suppressed_before=980")
}
