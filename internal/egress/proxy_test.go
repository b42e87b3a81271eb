package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// connectProxy is a proxy that opens tunnels. Every tunnel leads to the same receiver,
// whatever address was requested; the tests check the requested addresses.
type connectProxy struct {
	url *url.URL

	mu       sync.Mutex
	connects []*http.Request
}

// proxyTo starts a proxy. answer returns the response to the request with that number,
// counted from 1; "" opens a tunnel to the receiver.
func proxyTo(t *testing.T, receiver string, answer func(number int) string) *connectProxy {
	t.Helper()
	return secureProxyTo(t, nil, receiver, answer)
}

// secureProxyTo is proxyTo with an https proxy, unless secure is nil.
func secureProxyTo(t *testing.T, secure *tls.Config, receiver string, answer func(number int) string) *connectProxy {
	t.Helper()
	p := &connectProxy{}
	address := rawServer(t, func(tcp *net.TCPConn, _ int) {
		var conn net.Conn = tcp
		if secure != nil {
			conn = tls.Server(tcp, secure)
			defer conn.Close()
		}
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		p.mu.Lock()
		p.connects = append(p.connects, req)
		number := len(p.connects)
		p.mu.Unlock()
		switch said := answer(number); said {
		case "":
			tunnelling(conn, receiver)
		case "hang":
			hold(conn)
		default:
			_, _ = io.WriteString(conn, said)
		}
	})
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	p.url = &url.URL{Scheme: scheme, Host: address, User: url.UserPassword("out", "s3cr3t")}
	return p
}

func tunnelling(conn net.Conn, receiver string) {
	far, err := net.Dial("tcp", receiver)
	if err != nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer far.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	var there sync.WaitGroup
	there.Go(func() {
		_, _ = io.Copy(far, conn)
		_ = far.Close()
	})
	_, _ = io.Copy(conn, far)
	_ = conn.Close()
	there.Wait()
}

func always(text string) func(int) string { return func(int) string { return text } }

// requests returns the requested addresses.
func (p *connectProxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []string{}
	for _, req := range p.connects {
		all = append(all, req.Host)
	}
	return all
}

// strictly allows public addresses only, over http too and on any port.
func strictly() *Guard { return NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true}) }

func TestThroughTheProxy(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	p := proxyTo(t, receiver.Addr().String(), always(""))
	c := setup(t, Config{Guard: strictly(), Proxy: p.url, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
		return []netip.Addr{netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("93.184.215.14")}, 0
	})})
	request := Request{EndpointID: "ep_1", URL: "http://receiver.example.:8080/hook", Body: []byte("{}"), Timeout: patience}
	for range 2 {
		requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	}
	require.Equal(t, []string{"93.184.215.14:8080"}, p.requests(), "one tunnel, to the address that was checked")
	require.Equal(t, "Basic b3V0OnMzY3IzdA==", p.connects[0].Header.Get("Proxy-Authorization"))
	require.Equal(t, "CONNECT", p.connects[0].Method)
	require.Len(t, receiver.Requests(), 2)
	for _, got := range receiver.Requests() {
		require.Empty(t, got.Header.Get("Proxy-Authorization"))
		require.Equal(t, "/hook", got.Path)
	}
}

// The TLS session through the tunnel is with the receiver, under its name.
func TestTLSThroughTheProxy(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for host, failure := range map[string]retry.Failure{"receiver.example": retry.FailureNone, "other.example": retry.FailureTLS} {
		receiver := receivertest.NewWith(t, receivertest.Options{TLS: ca.config(t, host, time.Now().Add(time.Hour))})
		p := proxyTo(t, receiver.Addr().String(), always(""))
		c := setup(t, Config{Guard: strictly(), Proxy: p.url, RootCAs: ca.pool, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, 0
		})})
		r := c.Send(t.Context(), Request{URL: "https://receiver.example/", Timeout: patience})
		require.Equal(t, failure, r.Answer.Failure, r.Err)
		require.Equal(t, []string{"93.184.215.14:443"}, p.requests())
	}
}

// The proxy never gets a denied address, also when a name changes its addresses: the
// address that was checked is the one that is requested.
func TestProxyIsAskedForNoDeniedAddress(t *testing.T) {
	t.Parallel()
	p := proxyTo(t, "127.0.0.1:1", always("HTTP/1.1 502 Bad Gateway\r\n\r\n"))
	denied := deniedAddresses()
	c := setup(t, Config{Guard: strictly(), Proxy: p.url, Resolver: naming(t, denied)})
	for i, addr := range denied {
		for _, host := range []string{literal(addr), nameOf(i)} {
			r := c.Send(t.Context(), Request{URL: "https://" + host + "/", Timeout: patience})
			if host == nameOf(i) {
				require.Equal(t, "dns_not_found: no such host", r.Err, "%s as %s", addr, host)
			} else {
				requireFailure(t, r, retry.FailureDenied, 0)
			}
		}
	}
	require.Empty(t, p.requests())

	rebinding := setup(t, Config{Guard: strictly(), Proxy: p.url, Resolver: resolver(t, func(_ string, number int) ([]netip.Addr, dnsmessage.RCode) {
		if number <= 1 {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, 0
		}
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, 0
	})})
	for _, failure := range []retry.Failure{retry.FailureProxyConnectFailed, retry.FailureDNSNotFound} {
		r := rebinding.Send(t.Context(), Request{URL: "https://receiver.example./", Timeout: patience})
		require.Equal(t, failure, r.Answer.Failure, r.Err)
	}
	require.Equal(t, []string{"93.184.215.14:443"}, p.requests())
}

// Faults when the proxy opens no tunnel.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	const noProxyAnswer = "proxy_refused: the egress proxy gave no answer, or none in HTTP"
	for name, c := range map[string]struct {
		answer string
		err    string
		ours   bool
	}{
		"bad gateway":           {"HTTP/1.1 502 Bad Gateway\r\n\r\n", "proxy_connect_failed: the egress proxy answered 502", false},
		"unavailable":           {"HTTP/1.1 503 Service Unavailable\r\n\r\n", "proxy_connect_failed: the egress proxy answered 503", false},
		"gateway timeout":       {"HTTP/1.1 504 Gateway Timeout\r\n\r\n", "proxy_connect_failed: the egress proxy answered 504", false},
		"forbidden":             {"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy_refused: the egress proxy answered 403", false},
		"fault of the proxy":    {"HTTP/1.1 500 Internal Server Error\r\n\r\n", "proxy_refused: the egress proxy answered 500", true},
		"hang":                  {"hang", "timeout_dial: the deadline passed", false},
		"answer before request": {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "protocol_error: an answer before the request", false},
		"authentication":        {"HTTP/1.1 407 Who are you\r\n\r\n", "proxy_refused: the egress proxy answered 407", true},
		"not a proxy":           {"HTTP/1.1 405 Method Not Allowed\r\n\r\n", "proxy_refused: the egress proxy answered 405", true},
		"redirect":              {"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n", "proxy_refused: the egress proxy answered 302", true},
		"two lengths": {
			"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbusy!", "proxy_connect_failed: the egress proxy answered 502", false,
		},
		"long head": {
			"HTTP/1.1 504 Late\r\nX: " + strings.Repeat("y", 12_000) + "\r\n\r\n", "proxy_connect_failed: the egress proxy answered 504", false,
		},
		"head breaks off":       {"HTTP/1.1 403 No\r\nX: y", "proxy_refused: the egress proxy answered 403", false},
		"odd status line":       {"http/1.1  503\n\n", "proxy_connect_failed: the egress proxy answered 503", false},
		"interim":               {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 502 Bad\r\n\r\n", "proxy_connect_failed: the egress proxy answered 502", false},
		"success breaks off":    {"HTTP/1.1 200 OK\r\nX: y", noProxyAnswer, true},
		"garbage":               {"SSH-2.0-OpenSSH\r\n", noProxyAnswer, true},
		"endless head":          {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxProxyAnswer), noProxyAnswer, true},
		"closed without a word": {" ", noProxyAnswer, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := proxyTo(t, "", always(c.answer))
			timeout := patience
			if c.answer == "hang" {
				timeout = short
			}
			r := setup(t, Config{Guard: strictly(), Proxy: p.url}).Send(t.Context(), Request{URL: "http://93.184.215.14" + secretPath, Timeout: timeout})
			require.Equal(t, c.err, r.Err)
			require.Equal(t, c.ours, r.InternalFault)
			require.Less(t, r.Latency, timeout+time.Second)
			require.Zero(t, r.Answer.Status)
		})
	}
	gone := &url.URL{Scheme: "http", Host: "127.0.0.1:" + closedPort(t)}
	r := setup(t, Config{Guard: strictly(), Proxy: gone}).Send(t.Context(), Request{URL: "http://93.184.215.14" + secretPath, Timeout: patience})
	require.Equal(t, "proxy_refused: the egress proxy cannot be reached", r.Err)
	require.True(t, r.InternalFault)
}

// For a name with several addresses, the next one is requested when one fails or takes
// time, and none after a failure of the proxy.
func TestProxyIsAskedForTheNextAddress(t *testing.T) {
	t.Parallel()
	six := []netip.Addr{}
	for _, text := range []string{"93.184.215.14", "93.184.215.15", "93.184.215.16", "93.184.215.17", "93.184.215.18", "93.184.215.19"} {
		six = append(six, netip.MustParseAddr(text))
	}
	names := func(t *testing.T) *net.Resolver {
		t.Helper()
		return resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) { return six, 0 })
	}
	for name, c := range map[string]struct {
		first    string
		then     string
		connects int
		failure  retry.Failure
		ours     bool
	}{
		"down, then up": {"HTTP/1.1 502 Bad Gateway\r\n\r\n", "", 2, retry.FailureNone, false},
		"hang, then up": {"hang", "", 2, retry.FailureNone, false},
		"all down":      {"HTTP/1.1 503 Away\r\n\r\n", "HTTP/1.1 503 Away\r\n\r\n", len(six), retry.FailureProxyConnectFailed, false},
		"403, then up":  {"HTTP/1.1 403 No\r\n\r\n", "", 2, retry.FailureNone, false},
		"403, then 503": {"HTTP/1.1 403 No\r\n\r\n", "HTTP/1.1 503 Away\r\n\r\n", len(six), retry.FailureProxyRefused, false},
		"407":           {"HTTP/1.1 407 Who are you\r\n\r\n", "", 1, retry.FailureProxyRefused, true},
		"407 after 503": {"HTTP/1.1 503 Away\r\n\r\n", "HTTP/1.1 407 Who are you\r\n\r\n", 2, retry.FailureProxyRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := receivertest.New(t)
			p := proxyTo(t, receiver.Addr().String(), func(number int) string {
				if number == 1 {
					return c.first
				}
				return c.then
			})
			timeout := patience
			if c.first == "hang" {
				timeout = time.Second
			}
			r := setup(t, Config{Guard: strictly(), Proxy: p.url, Resolver: names(t)}).
				Send(t.Context(), Request{URL: "http://receiver.example.:8080/", Timeout: timeout})
			require.Equal(t, c.failure, r.Answer.Failure, r.Err)
			require.Equal(t, c.ours, r.InternalFault)
			require.Len(t, p.requests(), c.connects)
		})
	}
}

// Names that do not resolve, and the demonstration's receiver, do not reach the proxy.
func TestRequestsThatBypassTheProxy(t *testing.T) {
	t.Parallel()
	p := proxyTo(t, "", always("hang"))
	for code, failure := range map[dnsmessage.RCode]retry.Failure{
		dnsmessage.RCodeNameError: retry.FailureDNSNotFound, dnsmessage.RCodeServerFailure: retry.FailureDNSTemporary,
	} {
		c := setup(t, Config{Guard: strictly(), Proxy: p.url, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) { return nil, code })})
		requireFailure(t, c.Send(t.Context(), Request{URL: "https://receiver.example./", Timeout: patience}), failure, 0)
	}
	receiver := receivertest.New(t)
	c := setup(t, Config{Guard: strictly(), Proxy: p.url, Exempt: Exemption{URL: receiver.URL(), Addr: receiver.Addr()}})
	requireFailure(t, c.Send(t.Context(), Request{URL: receiver.URL(), Timeout: patience}), retry.FailureNone, 200)
	require.Empty(t, p.requests())
}

func TestCancelledAtTheProxy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := proxyTo(t, "", func(int) string {
		cancel()
		return "hang"
	})
	r := setup(t, Config{Guard: strictly(), Proxy: p.url}).Send(ctx, Request{URL: "http://93.184.215.14/", Timeout: patience})
	require.True(t, r.InternalFault)
	require.Equal(t, "unknown: cancelled by the sender", r.Err)
}

// An https proxy: plain and TLS receivers, kept connections, bytes that nobody has asked for.
func TestSecureProxy(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	secure := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	for scheme, receiver := range map[string]*receivertest.Receiver{
		"http":  receivertest.New(t),
		"https": receivertest.NewWith(t, receivertest.Options{TLS: ca.config(t, "93.184.215.14", time.Now().Add(time.Hour))}),
	} {
		p := secureProxyTo(t, secure, receiver.Addr().String(), always(""))
		c := setup(t, Config{Guard: strictly(), Proxy: p.url, RootCAs: ca.pool})
		for range 3 {
			r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: scheme + "://93.184.215.14:8080/", Body: []byte("{}"), Timeout: patience})
			requireFailure(t, r, retry.FailureNone, 200)
		}
		require.Equal(t, []string{"93.184.215.14:8080"}, p.requests(), "%s: the tunnel was kept", scheme)
		require.Equal(t, "Basic b3V0OnMzY3IzdA==", p.connects[0].Header.Get("Proxy-Authorization"))
	}

	unasked := rawServer(t, func(conn *net.TCPConn, _ int) {
		if readRequest(bufio.NewReader(conn)) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
			hold(conn)
		}
	})
	p := secureProxyTo(t, secure, unasked, always(""))
	c := setup(t, Config{Guard: strictly(), Proxy: p.url, RootCAs: ca.pool})
	for range 2 {
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://93.184.215.14/", Timeout: patience}), retry.FailureNone, 200)
	}
	require.Len(t, p.requests(), 2, "a connection on which more than the answer arrived is not used again")

	for name, config := range map[string]*tls.Config{
		"another name": ca.config(t, "other.example", time.Now().Add(time.Hour)),
		"not trusted":  newAuthority(t).config(t, "127.0.0.1", time.Now().Add(time.Hour)),
	} {
		p := secureProxyTo(t, config, "", always(""))
		r := setup(t, Config{Guard: strictly(), Proxy: p.url, RootCAs: ca.pool}).Send(t.Context(), Request{URL: "http://93.184.215.14/", Timeout: patience})
		require.True(t, r.InternalFault, name)
		require.Contains(t, r.Err, "proxy_refused: no TLS session with the egress proxy: ", name)
		require.Empty(t, p.requests(), name)
	}
}

// A proxy that is away is away for each address of a name, also when the deadline ends the race.
func TestUnreachableProxyAndSeveralAddresses(t *testing.T) {
	t.Parallel()
	failed := newFailedAddrs()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, err := race(ctx, []netip.AddrPort{port(1), port(2)}, failed, func(ctx context.Context, _ netip.AddrPort) (*pipe, error) {
		<-ctx.Done()
		return nil, refusedByProxy("the egress proxy cannot be reached")
	})
	require.True(t, isOwn(err), err)
}

// Names for the proxy: no look-up here, literal addresses are checked, and no name that only a private network knows is sent.
func TestNamesForTheProxy(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	p := proxyTo(t, receiver.Addr().String(), always(""))
	guard := NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true, DeniedHosts: NewHostList("evil.example"), Names: &NamesConfig{
		Own: []string{"hooks.example.com", "Proxy.example.net", ""}, NoProxy: NewHostList("direct.internal"),
	}})
	var asked atomic.Int32
	c := setup(t, Config{
		Guard: guard, Proxy: p.url, ProxyNames: true, NoProxy: NewHostList("direct.internal"),
		Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			asked.Add(1)
			return nil, dnsmessage.RCodeNameError
		}),
	})
	for _, host := range []string{"receiver.example", "Receiver.Example.", "a.hooks.example.com", "local.example", "1a.example", "93.184.215.14"} {
		requireFailure(t, c.Send(t.Context(), Request{URL: "http://" + host + ":8080/", Timeout: patience}), retry.FailureNone, 200)
	}
	require.Equal(t, []string{
		"receiver.example:8080", "receiver.example:8080", "a.hooks.example.com:8080", "local.example:8080", "1a.example:8080", "93.184.215.14:8080",
	}, p.requests())
	for _, host := range []string{
		"intranet", "localhost", "a.localhost", "printer.local", "LOCAL.", "db.internal.", "hooks.example.com", "HOOKS.example.com.", "proxy.example.net",
		"evil.example", "a.evil.example", "127.1", "127.0.0.1.", "0x7f.1", "a.0x7f", "10.0.0.1", "[::1]", "169.254.169.254",
	} {
		_, err := guard.CheckURL("http://" + host + ":8080/")
		require.Error(t, err, host)
		requireFailure(t, c.Send(t.Context(), Request{URL: "http://" + host + ":8080/", Timeout: patience}), retry.FailureDenied, 0)
	}
	require.Len(t, p.requests(), 6)
	require.Zero(t, asked.Load())
	r := c.Send(t.Context(), Request{URL: "http://direct.internal/", Timeout: patience})
	require.Equal(t, retry.FailureDNSNotFound, r.Answer.Failure, "looked up and checked here")
	require.Positive(t, asked.Load())
}

func TestNoProxy(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	p := proxyTo(t, "", always("HTTP/1.1 502 Bad Gateway\r\n\r\n"))
	c := setup(t, Config{Guard: local(), Proxy: p.url, NoProxy: NewHostList("127.0.0.0/8")})
	requireFailure(t, c.Send(t.Context(), Request{URL: receiver.URL(), Timeout: patience}), retry.FailureNone, 200)
	require.Empty(t, p.requests())
	requireFailure(t, c.Send(t.Context(), Request{URL: "http://93.184.215.14/", Timeout: patience}), retry.FailureProxyConnectFailed, 0)
	require.Len(t, p.requests(), 1)
}

func TestHostList(t *testing.T) {
	t.Parallel()
	for entry, hosts := range map[string]map[string]bool{
		"shop.example":      {"shop.example": true, "SHOP.example.": true, "a.shop.example": true, "ashop.example": false, "example": false},
		".shop.example":     {"shop.example": false, "a.shop.example": true},
		"*.shop.example":    {"shop.example": false, "a.b.shop.example": true},
		"shop.example:8443": {"shop.example": false, "shop.example:8443": true, "a.shop.example:8443": true, "shop.example:84": false},
		"10.0.0.0/8":        {"10.1.2.3": true, "11.1.2.3": false, "10.example": false},
		"10.1.2.3":          {"10.1.2.3": true, "10.1.2.4": false},
		"10.1.2.3:80":       {"10.1.2.3": false, "10.1.2.3:80": true},
		"[fd00::1]:443":     {"fd00::1": true},
		"fd00::/8":          {"fd00::1": true, "fe00::1": false},
		"*":                 {"shop.example": true, "10.1.2.3": true},
		"":                  {"shop.example": false, "": false},
		"a b":               {"a b": false},
	} {
		for host, want := range hosts {
			name, port, found := strings.Cut(host, ":")
			if !found || strings.Contains(port, ":") {
				name, port = host, "443"
			}
			require.Equal(t, want, NewHostList(entry).has(name, port), "%s in %s", host, entry)
		}
	}
}

// A refusal on the way to the token server is the same refusal.
func TestProxyRefusesTheTokenServer(t *testing.T) {
	t.Parallel()
	for status, ours := range map[string]bool{"403": false, "407": true} {
		p := proxyTo(t, "", always("HTTP/1.1 "+status+" No\r\n\r\n"))
		r := setup(t, Config{Guard: strictly(), Proxy: p.url}).Send(t.Context(), Request{
			EndpointID: "ep_1", URL: "http://93.184.215.14/", Timeout: patience,
			Auth: webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: "http://93.184.215.15/", ClientID: "a", ClientSecret: "b"},
		})
		require.Equal(t, "proxy_refused: the token server: the egress proxy answered "+status, r.Err)
		require.Equal(t, ours, r.InternalFault)
		require.Equal(t, []string{"93.184.215.15:80"}, p.requests())
	}
}
