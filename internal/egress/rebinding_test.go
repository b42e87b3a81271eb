package egress

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
)

// In these tests 127.0.0.1 stands for a public address and this machine's other addresses
// for private ones (onlyOne).
var (
	public  = netip.MustParseAddr("127.0.0.1")
	private = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.1.2.3"), netip.IPv6Loopback()}
)

func ok(conn net.Conn) {
	if readRequest(bufio.NewReader(conn)) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

// Whatever addresses a name server returns, and whenever they change, no connection is made
// to a private address, and the request goes to the public one if there is one.
func TestRebinding(t *testing.T) {
	t.Parallel()
	const reached, refused = retry.FailureNone, retry.FailureDNSNotFound
	for name, c := range map[string]struct {
		answers [][]netip.Addr // by request; the last one stays
		want    []retry.Failure
	}{
		"public, then private":          {[][]netip.Addr{{public}, {private[0]}}, []retry.Failure{reached, refused, refused}},
		"public, then IPv6 loopback":    {[][]netip.Addr{{public}, {private[2]}}, []retry.Failure{reached, refused}},
		"private, then public":          {[][]netip.Addr{{private[0]}, {public}}, []retry.Failure{refused, reached}},
		"back and forth":                {[][]netip.Addr{{public}, {private[0]}, {public}, {private[1]}}, []retry.Failure{reached, refused, reached, refused}},
		"mixed, public first":           {[][]netip.Addr{{public, private[0]}}, []retry.Failure{reached, reached}},
		"mixed, public last":            {[][]netip.Addr{{private[0], private[1], public}}, []retry.Failure{reached, reached}},
		"mixed families":                {[][]netip.Addr{{private[2], public}}, []retry.Failure{reached, reached}},
		"private only, several of them": {[][]netip.Addr{private}, []retry.Failure{refused}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := listenAll(t, 0, ok)
			var request atomic.Int32
			client := setup(t, Config{Guard: onlyOne(), Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
				return c.answers[min(int(request.Load()), len(c.answers)-1)], dnsmessage.RCodeSuccess
			})})
			connects := 0
			for i, want := range c.want {
				request.Store(int32(i))
				r := client.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://receiver.example.:" + e.port, Timeout: patience})
				require.Equal(t, want, r.Answer.Failure, "request %d: %s", i, r.Err)
				if want == reached {
					connects++
				}
			}
			e.sync(t)
			if connects == 0 {
				require.Empty(t, e.at())
			} else {
				require.Equal(t, map[netip.Addr]int{public: connects}, e.at())
			}
		})
	}
}

// No response makes the client connect elsewhere: each redirect status, and each field that
// contains a URL.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	var port string
	e := listenAll(t, 0, func(conn net.Conn) {
		if !readRequest(bufio.NewReader(conn)) {
			return
		}
		elsewhere := "http://127.0.0.2:" + port + "/latest/meta-data/"
		_, _ = io.WriteString(conn, "HTTP/1.1 "+strconv.Itoa(int(status.Load()))+" Elsewhere\r\nLocation: "+elsewhere+"\r\nRefresh: 0; url="+elsewhere+
			"\r\nContent-Location: "+elsewhere+"\r\nAlt-Svc: h2=\"127.0.0.2:"+port+"\"\r\nLink: <"+elsewhere+">; rel=preload\r\nProxy: "+elsewhere+
			"\r\nContent-Length: 0\r\n\r\n")
	})
	port = e.port
	c := setup(t, Config{Guard: local()}) // it may go there, and does not
	requests := 0
	for _, code := range []int{200, 201, 300, 301, 302, 303, 304, 305, 306, 307, 308, 399, 401, 407, 421, 503} {
		status.Store(int32(code))
		requireFailure(t, c.Send(t.Context(), Request{URL: "http://127.0.0.1:" + e.port + "/", Timeout: patience}), retry.FailureNone, code)
		requests++
	}
	e.sync(t)
	require.Equal(t, map[netip.Addr]int{public: requests}, e.at())
}

// A port that is not allowed is not connected to, even at an allowed address.
func TestPortsAtTheSocket(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, ok)
	port, err := strconv.ParseUint(e.port, 10, 16)
	require.NoError(t, err)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	names := func(string, int) ([]netip.Addr, dnsmessage.RCode) {
		return []netip.Addr{public}, dnsmessage.RCodeSuccess
	}
	shut := setup(t, Config{Guard: NewGuard(GuardConfig{AllowHTTP: true, AllowedCIDRs: loopback}), Resolver: resolver(t, names)})
	wider := NewGuard(GuardConfig{AllowHTTP: true, AllowedCIDRs: loopback, ExtraPorts: []uint16{uint16(port)}})
	open := setup(t, Config{Guard: wider, Resolver: resolver(t, names)})
	for _, host := range []string{"127.0.0.1", "receiver.example."} {
		request := Request{URL: "http://" + host + ":" + e.port, Timeout: patience}
		require.Equal(t, "denied_address: "+portRefused(e.port), shut.Send(t.Context(), request).Err)
		requireFailure(t, open.Send(t.Context(), request), retry.FailureNone, 200)
	}
	e.sync(t)
	require.Equal(t, map[netip.Addr]int{public: 2}, e.at())
}

// The environment's proxies are not used: a proxy would connect where the guard cannot
// check.
func TestEnvironmentsProxiesAreIgnored(t *testing.T) { //nolint:paralleltest // sets the environment
	e := listenAll(t, 0, ok)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.2:"+e.port)
	}
	c := setup(t, Config{})
	requireFailure(t, c.Send(t.Context(), Request{URL: "http://127.0.0.1:" + e.port, Timeout: patience}), retry.FailureNone, 200)
	e.sync(t)
	require.Equal(t, map[netip.Addr]int{public: 1}, e.at())
}
