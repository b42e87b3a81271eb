package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// recording serves plain http, or https with a configuration, and returns the bytes of each
// request's head. net/http's server would change names and targets.
func recording(t testing.TB, config *tls.Config) (address string, heads <-chan string) {
	t.Helper()
	sent := make(chan string, 1000)
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		var rw net.Conn = conn
		if config != nil {
			rw = tls.Server(conn, config)
		}
		for br := bufio.NewReader(rw); ; {
			var head strings.Builder
			length := int64(0)
			for line := ""; line != "\r\n"; {
				var err error
				if line, err = br.ReadString('\n'); err != nil {
					return
				}
				head.WriteString(line)
				if name, value, _ := strings.Cut(line, ": "); name == "Content-Length" {
					for _, digit := range strings.TrimSpace(value) {
						length = length*10 + int64(digit-'0')
					}
				}
			}
			if _, err := io.CopyN(io.Discard, br, length); err != nil {
				return
			}
			sent <- head.String()
			_, _ = io.WriteString(rw, honest)
		}
	}), sent
}

// The bytes of a request: names as they were given, values without the blanks around them, and
// nothing that the connection depends on.
func TestBytesOfARequest(t *testing.T) {
	t.Parallel()
	address, heads := recording(t, nil)
	c := setup(t, Config{Version: "1.2.3"})
	requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + address + "/a%2fB/{t}?x=[1]", Body: []byte("{}"), Header: [][2]string{
		{"X-API-KEY", "k"}, {"SOAPAction", `"urn:a#b"`}, {"x_api_key", " u\t"}, {"apikey", "a"}, {"X-SourceSystem", ""},
		{"Accept", "*/*"}, {"webhook-id", "evt_1"}, {"everpost-attempt", "1"}, {"X-Twice", "1"}, {"x-twice", "2"},
		{"HOST", "evil.example"}, {"content-length", "1"}, {"Transfer-Encoding", "chunked"}, {"connection", "close"}, {"EXPECT", "100-continue"},
		{"Keep-Alive", "1"}, {"tE", "gzip"}, {"upgrade", "h2c"},
	}}), retry.FailureNone, 200)
	require.Equal(t, "POST /a%2fB/{t}?x=[1] HTTP/1.1\r\nHost: "+address+"\r\nUser-Agent: Everpost/1.2.3\r\n"+
		"X-API-KEY: k\r\nSOAPAction: \"urn:a#b\"\r\nx_api_key: u\r\napikey: a\r\nX-SourceSystem: \r\n"+
		"Accept: */*\r\nwebhook-id: evt_1\r\neverpost-attempt: 1\r\nX-Twice: 1\r\nx-twice: 2\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n", <-heads)

	// What is given replaces what is added otherwise, whatever its case; what authenticates the
	// endpoint replaces what is given.
	requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + address, Auth: webhook.Auth{Kind: webhook.AuthBearer, Token: "t"},
		Header: [][2]string{{"user-AGENT", "mine"}, {"CONTENT-TYPE", "text/plain"}, {"authorization", "mine"}}}), retry.FailureNone, 200)
	require.Equal(t, "POST / HTTP/1.1\r\nHost: "+address+"\r\nuser-AGENT: mine\r\nCONTENT-TYPE: text/plain\r\n"+
		"Authorization: Bearer t\r\nContent-Length: 0\r\n\r\n", <-heads)

	for _, field := range [][2]string{{"X-A", "b\r\nX-C: d"}, {"X-A", "b\nX"}, {"X-A\r\nX-B", "c"}, {"X A", "b"}, {"", "b"}, {"X-A:", "b"}, {"X-A", "\x00"}} {
		requireFailure(t, c.Send(t.Context(), Request{URL: "http://" + address, Header: [][2]string{field}}), retry.FailureDenied, 0)
	}
}

// Path and query are sent byte for byte as they were configured, or are refused when they are.
func TestURLIsSentAsConfigured(t *testing.T) {
	t.Parallel()
	address, heads := recording(t, nil)
	c := setup(t, Config{})
	sent := func(t require.TestingT, rest string) string {
		r := c.Send(context.Background(), Request{EndpointID: "ep_1", URL: "http://" + address + rest})
		require.Equal(t, 200, r.Answer.Status, r.Err)
		line, _, _ := strings.Cut(<-heads, " HTTP/1.1\r\n")
		return strings.TrimPrefix(line, "POST ")
	}
	for _, rest := range []string{
		"/a%2Fb/{tenant}", "/a%2Fb|c", "/a%2Fb^c", `/a%2Fb"c`, `/a\b`, "/a%2fb", "/%41", "/a;b=1,2", "//a//b/../c/./", "/a'(b)*!~$&+=:@", "/<x>", "/`x`",
		"/?", "/?a=b c"[:5], "/?a=%zz&b=%", "/?a={b}|^\"`\\", "/a?b?c", "/[1]", "/%00",
	} {
		require.Equal(t, rest, sent(t, rest))
	}
	require.Equal(t, "/", sent(t, ""))
	require.Equal(t, "/?a=1", sent(t, "?a=1"), "a request line begins with a slash")
	rapid.Check(t, func(t *rapid.T) {
		rest := "/" + rapid.StringMatching(`[!"$-~]{0,20}(%[0-9A-Fa-f]{2}){0,3}[!"$-~]{0,20}`).Draw(t, "rest")
		if _, err := c.config.Guard.CheckURL("http://" + address + rest); err == nil {
			require.Equal(t, rest, sent(t, rest))
		}
	})
	for _, rest := range []string{"/a b", "/ü", "/\x7f", "/a#b", "/#", "/\t", "/%zz", "/100%"} {
		_, err := c.config.Guard.CheckURL("http://" + address + rest)
		require.Error(t, err, rest)
	}
}

// The Host field and the name in the TLS handshake are the same, however the URL spells it.
func TestHostIsServerName(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	config := ca.config(t, "receiver.example", time.Now().Add(time.Hour))
	names := make(chan string, 10)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- hello.ServerName
		return nil, nil //nolint:nilnil // no other configuration
	}
	address, heads := recording(t, config)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	c := setup(t, Config{RootCAs: ca.pool, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0
	})})
	for _, host := range []string{"receiver.example", "receiver.example.", "RECEIVER.Example", "Receiver.example."} {
		requireFailure(t, c.Send(t.Context(), Request{URL: "HTTPS://" + host + ":" + port + "/"}), retry.FailureNone, 200)
		require.Equal(t, "receiver.example", <-names)
		require.Contains(t, <-heads, "\r\nHost: receiver.example:"+port+"\r\n")
	}
	for url, want := range map[string]string{
		"https://a.example": "a.example", "https://a.example:443/": "a.example", "https://a.example:0443": "a.example", "https://A.example.:443": "a.example",
		"http://a.example:80": "a.example", "http://a.example:443": "a.example:443", "https://a.example:80": "a.example:80",
		"https://[2606:4700::A]:443/": "[2606:4700::a]", "https://[2606:4700::a]:8443": "[2606:4700::a]:8443", "https://93.184.215.14": "93.184.215.14",
	} {
		target, err := NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true}).target(url, netip.AddrPort{})
		require.NoError(t, err)
		require.Equal(t, want, target.authority, url)
	}
}
