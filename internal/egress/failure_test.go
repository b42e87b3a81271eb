package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// short is the timeout of requests that are meant to time out.
const short = 150 * time.Millisecond

// secretPath must not appear in an error, not even in part.
const secretPath = "/s3cr3t-path?token=s3cr3t-query"

func requireFailure(t *testing.T, r Response, failure retry.Failure, status int) {
	t.Helper()
	require.Equal(t, failure, r.Answer.Failure, r.Err)
	require.Equal(t, status, r.Answer.Status, r.Err)
	require.False(t, r.InternalFault, r.Err)
	require.False(t, r.Answer.ReceivedAt.IsZero())
	require.NotContains(t, r.Err, "s3cr3t")
	require.LessOrEqual(t, len(r.Err), maxErrBytes)
	if failure == retry.FailureNone {
		require.Empty(t, r.Err)
	} else {
		require.Regexp(t, "^"+string(failure)+": .", r.Err)
	}
}

// Each way in which a hostile or broken receiver may use a connection, and the resulting
// failure. Every case ends within the timeout of the request.
func TestFailuresOfHostileReceivers(t *testing.T) {
	t.Parallel()
	afterRequest := func(act func(conn *net.TCPConn)) func(*net.TCPConn, int) {
		return func(conn *net.TCPConn, _ int) {
			if readRequest(bufio.NewReader(conn)) {
				act(conn)
			}
		}
	}
	say := func(text string) func(*net.TCPConn, int) {
		return afterRequest(func(conn *net.TCPConn) { _, _ = io.WriteString(conn, text) })
	}
	sayAndHold := func(text string) func(*net.TCPConn, int) {
		return afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, text)
			hold(conn)
		})
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		serve   func(*net.TCPConn, int)
		failure retry.Failure
		status  int
	}{
		"hang after accept":  {func(conn *net.TCPConn, _ int) { hold(conn) }, retry.FailureTimeoutHeaders, 0},
		"hang after request": {afterRequest(func(conn *net.TCPConn) { hold(conn) }), retry.FailureTimeoutHeaders, 0},
		"status drip": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 2")
			hold(conn)
		}), retry.FailureTimeoutHeaders, 0},
		"garbage drip": {afterRequest(func(conn *net.TCPConn) { drip(conn, "x", 10*time.Millisecond) }), retry.FailureProtocol, 0},
		"header drip": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"X: ")
			drip(conn, "x", 10*time.Millisecond)
		}), retry.FailureHeadersIncomplete, 200},
		"body drip": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"Content-Length: 100000\r\n\r\n")
			drip(conn, "x", 10*time.Millisecond)
		}), retry.FailureTimeoutBody, 200},
		"1xx drip": {afterRequest(func(conn *net.TCPConn) {
			drip(conn, "HTTP/1.1 102 Processing\r\n\r\n", 10*time.Millisecond)
		}), retry.FailureTimeoutHeaders, 0},
		"1xx flood": {afterRequest(func(conn *net.TCPConn) { flood(conn, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n") }), retry.FailureProtocol, 0},
		"endless headers": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok)
			flood(conn, "X: y\r\n")
		}), retry.FailureHeadersIncomplete, 200},
		"endless header": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"X: ")
			flood(conn, "yyyyyyyy")
		}), retry.FailureHeadersIncomplete, 200},
		"endless status": {afterRequest(func(conn *net.TCPConn) { flood(conn, "HTTP/1.1 200 OKOKOK") }), retry.FailureProtocol, 0},
		"endless body":   {afterRequest(func(conn *net.TCPConn) { _, _ = io.WriteString(conn, ok+"\r\n"); flood(conn, "yyyyyyyy") }), retry.FailureNone, 200},
		"endless chunks": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"Transfer-Encoding: chunked\r\n\r\n")
			flood(conn, "1\r\ny\r\n")
		}), retry.FailureNone, 200},
		"endless chunk extension": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"Transfer-Encoding: chunked\r\n\r\n1;")
			flood(conn, "yyyyyyyy")
		}), retry.FailureProtocol, 200},
		"endless trailers": {afterRequest(func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, ok+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n")
			flood(conn, "X: y\r\n")
		}), retry.FailureProtocol, 200},
		"101 hold":   {sayAndHold("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), retry.FailureNone, 101},
		"status 000": {say("HTTP/1.1 000 Nothing\r\n\r\n"), retry.FailureNone, 0},
		"status 099": {say("HTTP/1.1 099 Odd\r\n\r\n"), retry.FailureNone, 99},
		"status 999": {say("HTTP/1.1 999 Odd\r\n\r\n"), retry.FailureNone, 999},
		"status 600": {say("HTTP/1.1 600 Odd\r\n\r\n"), retry.FailureNone, 600},
		"status -20": {say("HTTP/1.1 -20 Odd\r\n\r\n"), retry.FailureProtocol, 0},
		"reset":      {afterRequest(func(conn *net.TCPConn) { _ = conn.SetLinger(0) }), retry.FailureConnectionReset, 0},
		// Close only the write side: closing both resets the connection if a request has
		// arrived.
		"closed at once":         {func(conn *net.TCPConn, _ int) { _ = conn.CloseWrite(); hold(conn) }, retry.FailureUnexpectedEOF, 0},
		"closed after request":   {say(""), retry.FailureUnexpectedEOF, 0},
		"closed in status":       {say("HTTP/1.1 20"), retry.FailureUnexpectedEOF, 0},
		"closed in a header":     {say(ok + "Conte"), retry.FailureHeadersIncomplete, 200},
		"closed in garbage":      {say("<html"), retry.FailureProtocol, 0},
		"closed in headers":      {say(ok + "X: y\r\n"), retry.FailureHeadersIncomplete, 200},
		"truncated 2xx":          {say(ok + "Content-Length: 10\r\n\r\nabc"), retry.FailureUnexpectedEOF, 200},
		"truncated chunks":       {say(ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nab"), retry.FailureUnexpectedEOF, 200},
		"bad chunks":             {say(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), retry.FailureProtocol, 200},
		"garbage":                {say("\x00\xff\x1b[31ms3cr3t\r\n\r\n"), retry.FailureProtocol, 0},
		"garbage with our query": {say("HTTP/1.1 " + secretPath + "\r\n\r\n"), retry.FailureProtocol, 0},
		"HTTP/0.9":               {say("<html>s3cr3t</html>\r\n"), retry.FailureProtocol, 0},
		"h2 preface":             {say("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00\r\n"), retry.FailureProtocol, 0},
		"two lengths":            {say(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), retry.FailureNone, 200},
		"the same length twice":  {say(ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"), retry.FailureNone, 200},
		"negative length":        {say(ok + "Content-Length: -2\r\n\r\nab"), retry.FailureNone, 200},
		"redirect":               {say("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\n\r\n"), retry.FailureNone, 302},
		"redirect to itself":     {say("HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), retry.FailureNone, 307},
		"no content":             {say("HTTP/1.1 204 No Content\r\n\r\n"), retry.FailureNone, 204},
		"HTTP/1.0":               {say("HTTP/1.0 200 OK\r\n\r\nbody"), retry.FailureNone, 200},
		"100 first":              {say("HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n"), retry.FailureNone, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Second
			if strings.HasPrefix(string(c.failure), "timeout") || strings.HasSuffix(name, " drip") {
				timeout = short
			}
			client := setup(t, Config{})
			r := client.Send(t.Context(), Request{
				EndpointID: "ep_1",
				URL:        "http://" + rawServer(t, c.serve) + secretPath,
				Body:       []byte(`{"a":1}`),
				Timeout:    timeout,
			})
			requireFailure(t, r, c.failure, c.status)
			require.Less(t, r.Latency, timeout+time.Second)
			require.LessOrEqual(t, len(r.Body), MaxStoredBytes)
			if c.failure != retry.FailureNone || c.status < 200 {
				require.Zero(t, client.pool.len(), "the connection must not be kept")
			}
		})
	}
}

func TestResetInTheBody(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	url := "http://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		if readRequest(bufio.NewReader(conn)) {
			_, _ = io.WriteString(conn, "HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nabc")
			<-seen
			_ = conn.SetLinger(0)
		}
	})
	c := setup(t, Config{})
	target, err := c.config.Guard.target(url, netip.AddrPort{})
	require.NoError(t, err)
	cn, _, err := c.dial(t.Context(), time.Now().Add(time.Minute), target, new(webhook.Times))
	require.NoError(t, err)
	cn.Conn = &signalling{Conn: cn.Conn, read: seen}
	req, err := c.requestHead(target, &Request{}, "")
	require.NoError(t, err)
	r, untouched := c.exchange(t.Context(), time.Now().Add(time.Minute), cn, req, &Request{}, new(webhook.Times))
	require.False(t, untouched)
	requireFailure(t, r, retry.FailureConnectionReset, 500)
	require.Equal(t, "abc", string(r.Body))
}

// signalling closes a channel when something was read.
type signalling struct {
	net.Conn
	read chan struct{}
	done bool
}

func (s *signalling) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 && !s.done {
		s.done = true
		close(s.read)
	}
	return n, err
}

func TestNames(t *testing.T) {
	t.Parallel()
	loopback := netip.MustParseAddr("127.0.0.1")
	closed := closedPort(t)
	for name, c := range map[string]struct {
		answer  func(string, int) ([]netip.Addr, dnsmessage.RCode)
		guard   *Guard
		failure retry.Failure
	}{
		"NXDOMAIN": {func(string, int) ([]netip.Addr, dnsmessage.RCode) { return nil, dnsmessage.RCodeNameError }, local(), retry.FailureDNSNotFound},
		"SERVFAIL": {func(string, int) ([]netip.Addr, dnsmessage.RCode) { return nil, dnsmessage.RCodeServerFailure }, local(), retry.FailureDNSTemporary},
		"REFUSED":  {func(string, int) ([]netip.Addr, dnsmessage.RCode) { return nil, dnsmessage.RCodeRefused }, local(), retry.FailureDNSTemporary},
		"silence":  {func(string, int) ([]netip.Addr, dnsmessage.RCode) { return nil, dnsmessage.RCodeSuccess }, local(), retry.FailureDNSTemporary},
		"private": {func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254")}, 0
		}, local(), retry.FailureDNSNotFound},
		"one denied, one down": {func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2"), loopback}, 0
		}, onlyOne(), retry.FailureConnectRefused},
		"rebinding": {func(string, int) ([]netip.Addr, dnsmessage.RCode) { return []netip.Addr{loopback}, 0 },
			NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true}), retry.FailureDNSNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Second
			if name == "silence" {
				timeout = short
			}
			client := setup(t, Config{Guard: c.guard, Resolver: resolver(t, c.answer)})
			url := "http://receiver.example.:" + closed + secretPath
			_, err := c.guard.CheckURL(url)
			require.NoError(t, err, "a name is only judged when it is dialled")
			r := client.Send(t.Context(), Request{URL: url, Timeout: timeout})
			requireFailure(t, r, c.failure, 0)
			require.NotContains(t, r.Err, "receiver.example")
			require.NotContains(t, r.Err, "10.0.0.1")
		})
	}
}

// A name resolves to a public address first and to a private one the next time: every dial
// is checked.
func TestRebindingBetweenRequests(t *testing.T) {
	t.Parallel()
	port := strings.TrimPrefix(answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), "127.0.0.1:")
	c := setup(t, Config{
		// 127.0.0.1 stands for a public address, 127.0.0.2 for a private one.
		Guard: onlyOne(),
		Resolver: resolver(t, func(_ string, number int) ([]netip.Addr, dnsmessage.RCode) {
			if number <= 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, 0
		}),
	})
	request := Request{EndpointID: "ep_1", URL: "http://receiver.example.:" + port}
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	requireFailure(t, c.Send(t.Context(), request), retry.FailureDNSNotFound, 0)
}

func TestDeniedWithoutADial(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{Guard: NewGuard(GuardConfig{})})
	for _, request := range []Request{
		{URL: "http://example.com" + secretPath},
		{URL: "https://127.0.0.1" + secretPath},
		{URL: "https://user:s3cr3t@example.com" + secretPath},
		{URL: "https://example.com/%zz" + secretPath},
		{URL: "https://example.com" + secretPath, Header: [][2]string{{"X", "a\r\ns3cr3t: b"}}},
		{URL: "https://example.com" + secretPath, Header: [][2]string{{"s3cr3t ", "a"}}},
	} {
		requireFailure(t, c.Send(t.Context(), request), retry.FailureDenied, 0)
	}
}

func TestConnecting(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	requireFailure(t, c.Send(t.Context(), Request{URL: "http://127.0.0.1:" + closedPort(t) + secretPath}), retry.FailureConnectRefused, 0)
	requireFailure(t, c.Send(t.Context(), Request{URL: "http://" + fullBacklog(t) + secretPath, Timeout: short}), retry.FailureTimeoutDial, 0)
}

func TestDeadlineAlreadyPast(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	requireFailure(t, c.Send(ctx, Request{URL: "http://127.0.0.1:1/"}), retry.FailureTimeoutTotal, 0)
}

// The caller's deadline applies when it is earlier.
func TestCallersDeadline(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	url := "http://" + rawServer(t, func(conn *net.TCPConn, _ int) { hold(conn) })
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	requireFailure(t, c.Send(ctx, Request{URL: url}), retry.FailureTimeoutHeaders, 0)
}

func TestCancelledIsNotTheReceiversFault(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	url := "http://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		if readRequest(bufio.NewReader(conn)) {
			cancel()
			hold(conn)
		}
	})
	for range 2 { // during the request, and before it
		r := c.Send(ctx, Request{EndpointID: "ep_1", URL: url})
		require.True(t, r.InternalFault)
		require.Equal(t, "unknown: cancelled by the sender", r.Err)
		require.Zero(t, c.pool.len())
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, otherCA := newAuthority(t), newAuthority(t)
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	serveTLS := func(config *tls.Config) func(*net.TCPConn, int) {
		return func(conn *net.TCPConn, _ int) {
			secure := tls.Server(conn, config)
			if readRequest(bufio.NewReader(secure)) {
				_, _ = io.WriteString(secure, answer)
			}
			_ = secure.Close()
		}
	}
	old := ca.config(t, "127.0.0.1", later)
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	mutual := ca.config(t, "127.0.0.1", later)
	mutual.ClientAuth = tls.RequireAnyClientCert
	twelve := ca.config(t, "127.0.0.1", later)
	twelve.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]struct {
		serve   func(*net.TCPConn, int)
		failure retry.Failure
		status  int
		cause   string
	}{
		"good":    {serveTLS(ca.config(t, "127.0.0.1", later)), retry.FailureNone, 200, ""},
		"TLS 1.2": {serveTLS(twelve), retry.FailureNone, 200, ""},
		"expired": {serveTLS(ca.config(t, "127.0.0.1", earlier)), retry.FailureTLS, 0,
			"the certificate expired at " + earlier.UTC().Format(time.RFC3339)},
		"another host": {serveTLS(ca.config(t, "other.example", later)), retry.FailureTLS, 0,
			`the certificate is for another host; it is for "other.example"`},
		"self-signed": {serveTLS(otherCA.config(t, "127.0.0.1", later)), retry.FailureTLS, 0,
			"an intermediate certificate is missing, or the authority is not trusted: " +
				"the receiver sent no certificate of the issuer \"test authority\""},
		"TLS 1.1": {serveTLS(old), retry.FailureTLS, 0,
			"protocol version not supported; the receiver may support only older versions or key exchanges"},
		"wants a client certificate": {serveTLS(mutual), retry.FailureTLS, 0,
			"certificate required; the receiver asked for a client certificate, and the endpoint has none"},
		"plaintext": {func(conn *net.TCPConn, _ int) {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			hold(conn)
		}, retry.FailureTLS, 0, "first record does not look like a TLS handshake; this port may be for plain HTTP"},
		"garbage": {func(conn *net.TCPConn, _ int) {
			_, _ = io.WriteString(conn, "\x16\x03\x03\x00\x04\x02\x00\x00\x00")
			hold(conn)
		}, retry.FailureTLS, 0, ""},
		"hang": {func(conn *net.TCPConn, _ int) { hold(conn) }, retry.FailureTimeoutTLS, 0, "the receiver sent nothing in the TLS handshake"},
		"close": {func(conn *net.TCPConn, _ int) {
			var header [5]byte // of the record with the sender's hello
			_, _ = io.ReadFull(conn, header[:])
			_, _ = io.CopyN(io.Discard, conn, int64(header[3])<<8|int64(header[4]))
		}, retry.FailureUnexpectedEOF, 0, "the connection was closed during the TLS handshake, before the receiver sent anything; it may support only older"},
		"reset": {func(conn *net.TCPConn, _ int) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.SetLinger(0)
		}, retry.FailureConnectionReset, 0, "connection reset by peer during the TLS handshake, before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Second
			if c.failure == retry.FailureTimeoutTLS {
				timeout = short
			}
			client := setup(t, Config{RootCAs: ca.pool})
			r := client.Send(t.Context(), Request{URL: "https://" + rawServer(t, c.serve) + secretPath, Timeout: timeout})
			requireFailure(t, r, c.failure, c.status)
			require.Contains(t, r.Err, c.cause)
		})
	}
}

// A name with a trailing dot is the same host to TLS.
func TestTLSByName(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	config := ca.config(t, "receiver.example", time.Now().Add(time.Hour))
	address := rawServer(t, func(conn *net.TCPConn, _ int) {
		secure := tls.Server(conn, config)
		if readRequest(bufio.NewReader(secure)) {
			_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := setup(t, Config{RootCAs: ca.pool, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0
	})})
	for _, host := range []string{"receiver.example", "receiver.example."} {
		url := "https://" + host + strings.TrimPrefix(address, "127.0.0.1")
		requireFailure(t, c.Send(t.Context(), Request{URL: url}), retry.FailureNone, 200)
	}
}

func TestOwnExhaustion(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.EADDRNOTAVAIL} {
		r := failed(t.Context(), phaseDial, fmt.Errorf("dial: %w", errno))
		require.True(t, r.InternalFault, errno)
	}
	for address, own := range map[string]bool{"93.184.215.14:443": true, "[2606:4700:4700::1111]:443": false} {
		r := failed(t.Context(), phaseDial, fmt.Errorf("dial: %w", &net.OpError{
			Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)),
			Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL),
		}))
		require.Equal(t, own, r.InternalFault, address)
		require.Equal(t, own, r.Answer.Failure == retry.FailureUnknown, address)
		require.Equal(t, !own, r.Answer.Failure == retry.FailureConnectRefused, address)
	}
	r := withFailure(t.Context(), Response{Answer: retry.Answer{Status: 200}}, phaseBody, syscall.ENOBUFS)
	require.False(t, r.InternalFault, "an answer that came decides")
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b  c", printable("a\nb\x1b\xffc"))
	for _, word := range []string{"", "x", "xx"} {
		long := printable(word + strings.Repeat("é", 300))
		require.True(t, utf8.ValidString(long) && strings.HasSuffix(long, "é…"), long)
		require.InDelta(t, maxErrBytes, len(long), 2)
	}
	long := printable(strings.Repeat("some words; ", 40))
	require.LessOrEqual(t, len(long), maxErrBytes)
	require.Regexp(t, "(some|words)…$", long)
}

// What an error quotes is left out, and what follows stays.
func TestInnermostWithoutQuotations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`unknown authority (possibly because of "x509: s3cr3t" while trying "s3\"cr3t")`: "unknown authority (possibly because of … while trying …)",
		`malformed "s3cr3t`: "malformed …",
		`plain`:             "plain",
	} {
		require.Equal(t, want, innermost(fmt.Errorf("outer: %w", errors.New(text)))) //nolint:err113 // texts of libraries
	}
}

// onlyOne allows 127.0.0.1 and no other address of this machine.
func onlyOne() *Guard {
	return NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
}

// closedPort returns a port on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	return strings.TrimPrefix(address, "127.0.0.1:")
}

// fullBacklog returns an address that accepts no more connections: its queue is full, so a
// connect neither succeeds nor fails.
func fullBacklog(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(socket, 0))
	bound, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	inet, ok := bound.(*syscall.SockaddrInet4)
	require.True(t, ok)
	address := fmt.Sprintf("127.0.0.1:%d", inet.Port)
	for range 16 {
		conn, err := net.DialTimeout("tcp4", address, short)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue does not fill up")
	return ""
}
