package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
)

// hostile is a class of misbehaving receivers and the expected result of a request to it.
type hostile struct {
	url    func(t *testing.T, ca *authority) string
	reason retry.Reason
	err    string // the class of Response.Err; "" for none
	times  int    // requests, one after the other; 0 is one
	body   int    // bytes of each request
}

// at serves plain http with serve.
func at(serve func(conn *net.TCPConn, number int)) func(*testing.T, *authority) string {
	return func(t *testing.T, _ *authority) string {
		t.Helper()
		return "http://" + rawServer(t, serve)
	}
}

// said serves plain http: it reads the request, sends the text and closes.
func said(text string) func(*testing.T, *authority) string {
	return at(afterReading(func(conn *net.TCPConn) { _, _ = io.WriteString(conn, text) }))
}

// after serves plain http: it reads the request, sends the text and calls act.
func after(text string, act func(net.Conn)) func(*testing.T, *authority) string {
	return at(afterReading(func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, text)
		act(conn)
	}))
}

// withTLS serves https with a certificate for the host until a time.
func withTLS(host string, until time.Duration, known bool) func(*testing.T, *authority) string {
	return func(t *testing.T, ca *authority) string {
		t.Helper()
		if !known {
			ca = newAuthority(t)
		}
		config := ca.config(t, host, time.Now().Add(until))
		return "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
			session := tls.Server(conn, config)
			if readRequest(bufio.NewReader(session)) {
				_, _ = io.WriteString(session, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		})
	}
}

// underTLS accepts https connections and calls act instead of a handshake.
func underTLS(act func(net.Conn)) func(*testing.T, *authority) string {
	return func(t *testing.T, _ *authority) string {
		t.Helper()
		return "https://" + rawServer(t, func(conn *net.TCPConn, _ int) { act(conn) })
	}
}

// calling returns a URL with a name of hostileNames.
func calling(name string) func(*testing.T, *authority) string {
	return func(t *testing.T, _ *authority) string {
		t.Helper()
		return "http://" + name + ".receiver.example.:" + closedPort(t)
	}
}

func hostileNames(t *testing.T) *net.Resolver {
	t.Helper()
	return resolver(t, func(name string, _ int) ([]netip.Addr, dnsmessage.RCode) {
		switch name, _, _ = strings.Cut(name, "."); name {
		case "failing":
			return nil, dnsmessage.RCodeServerFailure
		case "slow":
			return nil, dnsmessage.RCodeSuccess
		case "rebound":
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254")}, dnsmessage.RCodeSuccess
		default:
			return nil, dnsmessage.RCodeNameError
		}
	})
}

func dripping(text string) func(net.Conn) {
	return func(conn net.Conn) { drip(conn, text, 20*time.Millisecond) }
}

func flooding(text string) func(net.Conn) {
	much := bytes.Repeat([]byte(text), 1+(8<<10)/len(text)) // few writes, so that the client is the bottleneck
	return func(conn net.Conn) {
		for {
			if _, err := conn.Write(much); err != nil {
				return
			}
		}
	}
}

// gzipBomb is a response whose body unpacks to 100 MiB.
func gzipBomb() string {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = io.CopyN(zip, zeros{}, 100<<20) // into memory: cannot fail
	_ = zip.Close()
	return "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(packed.Len()) + "\r\n\r\n" + packed.String()
}

// hostileClasses are the classes of the threat model, and a few more.
func hostileClasses() map[string]hostile {
	const answer = "HTTP/1.1 200 OK\r\n"
	all := map[string]hostile{
		"hang before accept": {url: func(t *testing.T, _ *authority) string {
			t.Helper()
			return "http://" + fullBacklog(t)
		}, reason: "timeout_dial", err: "timeout_dial"},
		"hang after accept": {url: at(func(conn *net.TCPConn, _ int) { hold(conn) }), reason: "timeout_headers", err: "timeout_headers"},
		"status drip":       {url: after("HTTP/1.1 200 ", dripping("y")), reason: "timeout_headers", err: "timeout_headers"},
		"header drip":       {url: after(answer+"X: ", dripping("y")), reason: "delivered", err: "headers_incomplete"},
		"body drip":         {url: after(answer+"Content-Length: 99999\r\n\r\n", dripping("y")), reason: "delivered", err: "timeout_body"},
		"endless body":      {url: after(answer+"\r\n", flooding("yyyyyyyy")), reason: "delivered"},
		"endless headers":   {url: after(answer, flooding("X: y\r\n")), reason: "delivered", err: "headers_incomplete"},
		"1xx flood":         {url: after("", flooding("HTTP/1.1 103 Early Hints\r\n\r\n")), reason: "protocol_error", err: "protocol_error"},
		"101 hold":          {url: after("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", hold), reason: "http_101"},
		"RST":               {url: at(afterReading(func(conn *net.TCPConn) { _ = conn.SetLinger(0) })), reason: "connection_reset", err: "connection_reset"},
		"garbage":           {url: after("", flooding("\x00\xff\xfe\x1b[31m")), reason: "protocol_error", err: "protocol_error"},
		"HTTP/0.9":          {url: said("<html>hello</html>\r\n"), reason: "protocol_error", err: "protocol_error"},
		"status 000":        {url: said("HTTP/1.1 000 Nothing\r\n\r\n"), reason: "http_000"},
		"status 999":        {url: said("HTTP/1.1 999 Odd\r\n\r\n"), reason: "http_999"},
		"duplicate Content-Length": {
			url: said(answer + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), reason: "delivered",
		},
		"truncated 2xx":        {url: said(answer + "Content-Length: 99\r\n\r\nabc"), reason: "delivered", err: "unexpected_eof"},
		"gzip bomb":            {url: said(gzipBomb()), reason: "delivered"},
		"redirect loop":        {url: said("HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), reason: "http_307"},
		"redirect to metadata": {url: said("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"), reason: "http_302"},
		"self-signed":          {url: withTLS("127.0.0.1", time.Hour, false), reason: "tls_invalid", err: "tls_invalid"},
		"expired":              {url: withTLS("127.0.0.1", -time.Hour, true), reason: "tls_invalid", err: "tls_invalid"},
		"wrong host":           {url: withTLS("other.example", time.Hour, true), reason: "tls_invalid", err: "tls_invalid"},
		"plaintext on TLS": {url: underTLS(func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			hold(conn)
		}), reason: "tls_invalid", err: "tls_invalid"},
		"h2 preface": {
			url:    said("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00\r\n"),
			reason: "protocol_error", err: "protocol_error",
		},
		"NXDOMAIN":  {url: calling("nothingListens"), reason: "dns_not_found", err: "dns_not_found"},
		"SERVFAIL":  {url: calling("failing"), reason: "dns_temporary", err: "dns_temporary"},
		"slow DNS":  {url: calling("slow"), reason: "dns_temporary", err: "dns_temporary"},
		"rebinding": {url: calling("rebound"), reason: "dns_not_found", err: "dns_not_found"},
		"Retry-After rubbish": {
			url: said("HTTP/1.1 503 Busy\r\nRetry-After: " + strings.Repeat("9", 4000) + "x\r\nContent-Length: 0\r\n\r\n"), reason: "http_503",
		},
		"closes between keep-alive requests": {url: said(answer + "Content-Length: 2\r\n\r\nok"), reason: "delivered", times: 5},

		"no handshake":    {url: underTLS(func(conn net.Conn) { hold(conn) }), reason: "timeout_tls", err: "timeout_tls"},
		"handshake drip":  {url: underTLS(dripping("\x16")), reason: "tls_invalid", err: "tls_invalid"},
		"handshake flood": {url: underTLS(flooding("\x16\x03\x03\x40\x00" + strings.Repeat("\x02", 1<<14))), reason: "tls_invalid", err: "tls_invalid"},
		"reads nothing": {url: func(t *testing.T, _ *authority) string {
			t.Helper()
			over := make(chan struct{})
			address := rawServer(t, func(*net.TCPConn, int) { <-over })
			t.Cleanup(func() { close(over) })
			return "http://" + address
		}, reason: "timeout_headers", err: "timeout_headers", body: 16 << 20},
	}
	maps.Copy(all, memoryClasses())
	return all
}

// attempt makes the class's requests and returns the last response.
func (h hostile) attempt(t *testing.T, c *Client, endpoint, url string, body []byte, timeout time.Duration) Response {
	t.Helper()
	var r Response
	for i := range max(1, h.times) {
		if i > 0 && !eventually(func() bool { return !keptAlive(c, endpoint) }) {
			t.Error("the kept connection stays open")
		}
		r = c.Send(t.Context(), Request{EndpointID: endpoint, URL: url + secretPath, Body: body[:h.body], Timeout: timeout})
		if r.Latency > timeout+time.Second {
			t.Errorf("took %s", r.Latency)
		}
	}
	return r
}

// keptAlive reports whether the endpoint has a connection that could be used.
func keptAlive(c *Client, endpoint string) bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	s := c.pool.byID[endpoint]
	if s == nil {
		return false
	}
	kept := connOf(s.idle[len(s.idle)-1])
	return kept.SetDeadline(time.Now().Add(time.Minute)) == nil && kept.noPendingData(true)
}

// eventually is require.Eventually for goroutines other than the test's.
func eventually(condition func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if condition() {
			return true
		}
		<-tick.C
	}
	return false
}

// wrong describes how a response differs from the expected one, "" when it does not.
func (h hostile) wrong(r Response) string {
	outcome := retry.Classify(r.Answer, retry.Default())
	class, _, _ := strings.Cut(r.Err, ":")
	switch {
	case r.InternalFault, outcome.Reason != h.reason, class != h.err, outcome.RetryAfter != 0:
		return string(outcome.Reason) + ": " + r.Err
	case len(r.Body) > MaxStoredBytes, strings.Contains(r.Err, "s3cr3t"):
		return "more is kept than may be"
	default:
		return ""
	}
}

// Each class by itself ends at most a second after its deadline, with the expected result,
// and leaves no goroutine of the client behind although the receiver is still connected.
func TestEachHostileClass(t *testing.T) { //nolint:paralleltest // it looks at the goroutines of the process
	body := make([]byte, 16<<20)
	for name, h := range hostileClasses() {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			c := setup(t, Config{RootCAs: ca.pool, Resolver: hostileNames(t)})
			timeout := 5 * time.Second // for classes that end by themselves
			if strings.HasPrefix(string(h.reason), "timeout") || strings.HasPrefix(h.err, "timeout") || h.err == "headers_incomplete" {
				timeout = 400 * time.Millisecond
			}
			r := h.attempt(t, c, "ep_1", h.url(t, ca), body, timeout)
			require.Empty(t, h.wrong(r))
			if h.err != "" {
				require.Zero(t, c.pool.len(), "no connection is kept after a failure")
			}
			require.Eventually(t, func() bool { return running("egress.(*Client)") == 0 }, 5*time.Second, time.Millisecond, "a goroutine is left")
		})
		goleak.VerifyNone(t)
	}
}

// running counts the goroutines whose stacks contain all of these words.
func running(words ...string) int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(stack, word) }) {
			n++
		}
	}
	return n
}

// All classes at once, 500 requests: the same, and the process, including the receivers,
// grows by less than 64 MiB.
func TestFiveHundredHostileReceiversAtOnce(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	const requests, timeout, limit = 500, 5 * time.Second, 64 << 20
	ca := newAuthority(t)
	type started struct {
		hostile

		name, url string
	}
	var all []started
	for name, h := range hostileClasses() {
		all = append(all, started{h, name, h.url(t, ca)})
	}
	body := make([]byte, 16<<20)
	c := setup(t, Config{RootCAs: ca.pool, Resolver: hostileNames(t)})

	runtime.GC()
	before := inUse()
	peak := watchMemory(t)
	var sending sync.WaitGroup
	for i := range requests {
		sending.Go(func() {
			h := all[i%len(all)]
			if wrong := h.wrong(h.attempt(t, c, "ep_"+strconv.Itoa(i), h.url, body, timeout)); wrong != "" {
				t.Errorf("%s: %s", h.name, wrong)
			}
		})
	}
	sending.Wait()
	grown := peak() - before
	require.Less(t, grown, int64(limit))
	t.Logf("grown by %d KiB", grown>>10)
	require.Eventually(t, func() bool { return running("egress.(*Client)") == 0 }, 5*time.Second, time.Millisecond, "a goroutine is left")
}

// inUse is the memory that the process has taken for its heap and its stacks.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// watchMemory samples inUse until the returned function is called, which returns the
// maximum.
func watchMemory(t *testing.T) func() int64 {
	t.Helper()
	over, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		peak := inUse()
		for {
			select {
			case <-tick.C:
				peak = max(peak, inUse())
			case <-over:
				most <- max(peak, inUse())
				return
			}
		}
	}()
	return func() int64 {
		close(over)
		return <-most
	}
}
