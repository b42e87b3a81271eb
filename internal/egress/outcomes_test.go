package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// judged is the result of a request over a real connection: the failure that egress reports
// and the outcome that the classifier derives from it.
type judged struct {
	send func(t *testing.T) Response
	want retry.Outcome
	err  string // how Response.Err begins; "" when a whole answer came
}

// patience is the timeout of requests that are not meant to time out.
const patience = 10 * time.Second

// over sends to a receiver that runs serve for each connection.
func over(timeout time.Duration, serve func(conn *net.TCPConn, number int)) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		return setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + rawServer(t, serve) + "/hook", Body: []byte("{}"), Timeout: timeout})
	}
}

// replying sends to a receiver that reads the request, writes the text, and closes.
func replying(text string) func(*testing.T) Response {
	return over(patience, afterReading(func(conn *net.TCPConn) { _, _ = io.WriteString(conn, text) }))
}

// hanging is replying, but the receiver does not close.
func hanging(text string) func(*testing.T) Response {
	return over(short, afterReading(func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, text)
		hold(conn)
	}))
}

func afterReading(act func(conn *net.TCPConn)) func(*net.TCPConn, int) {
	return func(conn *net.TCPConn, _ int) {
		if readRequest(bufio.NewReader(conn)) {
			act(conn)
		}
	}
}

// named sends to a name that resolves to the addresses, or fails with the code.
func named(timeout time.Duration, addrs []netip.Addr, code dnsmessage.RCode) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		c := setup(t, Config{Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) { return addrs, code })})
		return c.Send(t.Context(), Request{URL: "http://receiver.example.:" + closedPort(t), Timeout: timeout})
	}
}

// to sends to an address where nothing listens, or that the guard denies.
func to(guard GuardConfig, timeout time.Duration, url func(t *testing.T) string) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		return setup(t, Config{Guard: NewGuard(guard)}).Send(t.Context(), Request{URL: url(t), Timeout: timeout})
	}
}

func exactly(url string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return url
	}
}

func nothingListens(t *testing.T) string {
	t.Helper()
	return "http://127.0.0.1:" + closedPort(t)
}

func busy(t *testing.T) string {
	t.Helper()
	return "http://" + fullBacklog(t)
}

// late sends after its deadline.
func late(t *testing.T) Response {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	return setup(t, Config{}).Send(ctx, Request{URL: "http://127.0.0.1:1/"})
}

// byTLS sends by https to a receiver that sends the text instead of a handshake.
func byTLS(timeout time.Duration, text string) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		url := "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = io.WriteString(conn, text)
			hold(conn)
		})
		return setup(t, Config{}).Send(t.Context(), Request{URL: url, Timeout: timeout})
	}
}

// secure sends by https to a receiver with a certificate for the host until a time, of a
// trusted authority or not.
func secure(host string, until time.Duration, trusted bool) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		ca := newAuthority(t)
		pool := ca.pool
		if !trusted {
			pool = newAuthority(t).pool
		}
		config := ca.config(t, host, time.Now().Add(until))
		url := "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
			session := tls.Server(conn, config)
			if readRequest(bufio.NewReader(session)) {
				_, _ = io.WriteString(session, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		})
		return setup(t, Config{RootCAs: pool}).Send(t.Context(), Request{URL: url})
	}
}

// tokenless sends to a receiver that needs a token, with a token server that responds with
// answer.
func tokenless(answer string) func(*testing.T) Response {
	return func(t *testing.T) Response {
		t.Helper()
		auth := webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: "http://" + answering(t, answer), ClientID: "id", ClientSecret: "s3cr3t"}
		return setup(t, Config{}).Send(t.Context(), Request{URL: "http://127.0.0.1:" + closedPort(t), Auth: auth})
	}
}

// outcomes is the classifier's table, from real connections.
func outcomes() map[string]judged {
	// Short names for the rows: whether the receiver is unhealthy (counts as a breaker
	// failure), whether it may be gone permanently (ambiguous_delays bounds it), and what ends
	// a delivery.
	unhealthy := func(reason retry.Reason) retry.Outcome {
		return retry.Outcome{Decision: retry.Retry, Reason: reason, BreakerFailure: true}
	}
	ambiguous := func(reason retry.Reason) retry.Outcome {
		return retry.Outcome{Decision: retry.Retry, Reason: reason, Ambiguous: true}
	}
	neutral := func(reason retry.Reason) retry.Outcome {
		return retry.Outcome{Decision: retry.Retry, Reason: reason}
	}
	denied := retry.Outcome{Decision: retry.Permanent, Reason: retry.ReasonDeniedAddress}
	delivered := func(status int) retry.Outcome {
		return retry.Outcome{Decision: retry.Delivered, Reason: retry.ReasonDelivered, Status: status}
	}
	strange := func(status int) retry.Outcome {
		return retry.Outcome{Decision: retry.Retry, Reason: retry.HTTPReason(status), Status: retry.NormalStatus(status), BreakerFailure: true}
	}
	const ok, broken = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 500 Oh\r\n"
	public := GuardConfig{AllowHTTP: true, AnyPort: true}
	anywhere := public
	anywhere.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	metadata := []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	reset := afterReading(func(conn *net.TCPConn) { _ = conn.SetLinger(0) })
	endless := afterReading(func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, ok+"\r\n")
		flood(conn, "yyyyyyyy")
	})

	return map[string]judged{
		"refused":        {to(anywhere, patience, nothingListens), unhealthy("connect_refused"), "connect_refused"},
		"reset":          {over(patience, reset), unhealthy("connection_reset"), "connection_reset"},
		"closed":         {replying(""), unhealthy("unexpected_eof"), "unexpected_eof"},
		"closed halfway": {replying("HTTP/1.1 20"), unhealthy("unexpected_eof"), "unexpected_eof"},
		"garbage":        {replying("\x00\xff\r\n\r\n"), unhealthy("protocol_error"), "protocol_error"},
		"HTTP/0.9":       {replying("<html></html>\r\n"), unhealthy("protocol_error"), "protocol_error"},

		"dial in vain":       {to(anywhere, short, busy), unhealthy("timeout_dial"), "timeout_dial"},
		"no handshake":       {byTLS(short, ""), unhealthy("timeout_tls"), "timeout_tls"},
		"no answer":          {hanging(""), unhealthy("timeout_headers"), "timeout_headers"},
		"half a status line": {hanging("HTTP/1.1 20"), unhealthy("timeout_headers"), "timeout_headers"},
		"no time left":       {late, unhealthy("timeout_total"), "timeout_total"},

		// A status that was read decides, whatever happens to the rest of the response: a
		// receiver that sent 2xx has accepted the event. The error still names the failure.
		"2xx, headers never end":  {hanging(ok + "Content-"), delivered(200), "headers_incomplete"},
		"2xx, headers cut off":    {replying(ok + "Content-"), delivered(200), "headers_incomplete"},
		"2xx, two lengths":        {replying(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), delivered(200), ""},
		"500, headers never end":  {hanging(broken), strange(500), "headers_incomplete"},
		"000, headers never end":  {hanging("HTTP/1.1 000 No\r\n"), unhealthy("headers_incomplete"), "headers_incomplete"},
		"2xx, body never ends":    {hanging(ok + "Content-Length: 9\r\n\r\nabc"), delivered(200), "timeout_body"},
		"2xx, body cut off":       {replying(ok + "Content-Length: 9\r\n\r\nabc"), delivered(200), "unexpected_eof"},
		"2xx, chunks are broken":  {replying(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), delivered(200), "protocol_error"},
		"2xx, endless body":       {over(patience, endless), delivered(200), ""},
		"500, body never ends":    {hanging(broken + "Content-Length: 9\r\n\r\nabc"), strange(500), "timeout_body"},
		"500, body cut off":       {replying(broken + "Content-Length: 9\r\n\r\nabc"), strange(500), "unexpected_eof"},
		"101":                     {hanging("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), strange(101), ""},
		"000":                     {replying("HTTP/1.1 000 Nothing\r\n\r\n"), strange(0), ""},
		"099":                     {replying("HTTP/1.1 099 Odd\r\n\r\n"), strange(0), ""},
		"600":                     {replying("HTTP/1.1 600 Odd\r\n\r\n"), strange(600), ""},
		"999":                     {replying("HTTP/1.1 999 Odd\r\n\r\n"), strange(999), ""},
		"1xx and no final answer": {replying("HTTP/1.1 103 Early Hints\r\n\r\n"), unhealthy("unexpected_eof"), "unexpected_eof"},
		"four digits":             {replying("HTTP/1.1 2000 OK\r\n\r\n"), unhealthy("protocol_error"), "protocol_error"},

		"NXDOMAIN":     {named(patience, nil, dnsmessage.RCodeNameError), unhealthy("dns_not_found"), "dns_not_found"},
		"SERVFAIL":     {named(patience, nil, dnsmessage.RCodeServerFailure), neutral("dns_temporary"), "dns_temporary"},
		"DNS is mute":  {named(short, nil, dnsmessage.RCodeSuccess), neutral("dns_temporary"), "dns_temporary"},
		"private name": {named(patience, metadata, dnsmessage.RCodeSuccess), unhealthy("dns_not_found"), "dns_not_found"},

		"certificate of nothingListens known": {secure("127.0.0.1", time.Hour, false), unhealthy("tls_invalid"), "tls_invalid"},
		"certificate expired":                 {secure("127.0.0.1", -time.Hour, true), unhealthy("tls_invalid"), "tls_invalid"},
		"certificate for another host":        {secure("other.example", time.Hour, true), unhealthy("tls_invalid"), "tls_invalid"},
		"certificate in order":                {secure("127.0.0.1", time.Hour, true), delivered(200), ""},
		"plaintext where TLS should be":       {byTLS(patience, "HTTP/1.1 400 Bad Request\r\n\r\n"), unhealthy("tls_invalid"), "tls_invalid"},

		"credentials refused":  {tokenless("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), ambiguous("token_refused"), "token_refused"},
		"token server is down": {tokenless("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n"), neutral("token_unavailable"), "token_unavailable"},

		"denied address": {to(public, patience, exactly("http://10.0.0.1/")), denied, "denied_address"},
		"unusable URL":   {to(public, patience, exactly("http://user@example.com/")), denied, "denied_address"},
		// A link-local address without its zone: the kernel's "invalid argument" says
		// nothing about the receiver.
		"unknown": {to(anywhere, patience, exactly("http://[fe80::1]:9/")), neutral("unknown"), "unknown"},
	}
}

// TestOutcomes covers every kind of error, from a real connection to the outcome.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range outcomes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.send(t)
			require.False(t, r.InternalFault, r.Err)
			require.Equal(t, c.want, retry.Classify(r.Answer, retry.Default()), r.Err)
			if c.err == "" {
				require.Empty(t, r.Err)
			} else {
				require.Regexp(t, "^"+c.err+": .", r.Err)
			}
		})
	}
}

// TestOutcomesAreComplete: the table above contains every reason that an attempt can have,
// and every failure.
func TestOutcomesAreComplete(t *testing.T) {
	t.Parallel()
	reasons, faults := map[retry.Reason]bool{}, map[string]bool{}
	for _, c := range outcomes() {
		reasons[c.want.Reason], faults[c.err] = true, true
	}
	all := retry.Reasons()
	for _, reason := range all[:slices.Index(all, retry.ReasonUnknown)+1] {
		// A payload that does not match its checksum is never sent. A body can time out
		// only after a status, which decides.
		if reason != retry.ReasonPayloadCorrupt && reason != retry.ReasonTimeoutBody && reason != retry.ReasonConnectionReused &&
			reason != retry.ReasonProxyRefused && reason != retry.ReasonProxyConnectFailed { // TestProxyRefuses
			require.True(t, reasons[reason], "no connection leads to %s", reason)
		}
	}
	faults[string(retry.FailureProxyRefused)], faults[string(retry.FailureProxyConnectFailed)] = true, true
	for _, failure := range retry.Failures() {
		require.True(t, faults[string(failure)], "no connection leads to %s", failure)
	}
}

// TestOutcomeOfEveryStatus: each status that a receiver can send, over one connection.
func TestOutcomeOfEveryStatus(t *testing.T) {
	t.Parallel()
	address := rawServer(t, func(conn *net.TCPConn, _ int) {
		br := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			status := strings.TrimPrefix(req.URL.Path, "/")
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+" Status\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := setup(t, Config{})
	for status := 200; status <= 999; status++ {
		want := retry.Outcome{Decision: retry.Permanent, Reason: retry.Reason("http_" + strconv.Itoa(status)), Status: status}
		switch {
		case status < 300:
			want.Decision, want.Reason = retry.Delivered, retry.ReasonDelivered
		case status == 404:
			want.Decision, want.Ambiguous = retry.Retry, true
		case status == 408, status == 425:
			want.Decision = retry.Retry
		case status == 410:
			want.DisableEndpoint = true
		case status == 429, status >= 500:
			want.Decision, want.BreakerFailure = retry.Retry, true
		}
		if want.Decision == retry.Retry {
			want.RetryAfter = 7 * time.Second
		}
		r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + address + "/" + strconv.Itoa(status)})
		require.Empty(t, r.Err, status)
		require.Equal(t, want, retry.Classify(r.Answer, retry.Default()), status)
	}
}
