package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestRequestAsReceived(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{Version: "1.2.3"})
	body := []byte(`{ "as":  "it was sent" }`)
	r := c.Send(t.Context(), Request{
		EndpointID: "ep_1",
		URL:        receiver.URL() + "/a%2fb?x=1&y=%20",
		Header: [][2]string{
			{"webhook-id", "evt_1"}, {"X-Twice", "1"}, {"x-twice", "2"}, {"X-Idempotency-Key", "evt_1"},
			{"Host", "evil.example"}, {"content-length", "1"}, {"Transfer-Encoding", "chunked"}, {"Connection", "close"}, {"expect", "100-continue"},
		},
		Body: body,
	})
	requireFailure(t, r, retry.FailureNone, 200)
	require.Positive(t, r.Latency)

	got := receiver.Requests()[0]
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "/a%2fb?x=1&y=%20", got.Path)
	require.Equal(t, string(body), string(got.Body))
	require.Equal(t, http.Header{
		"Webhook-Id":        {"evt_1"},
		"X-Twice":           {"1", "2"},
		"X-Idempotency-Key": {"evt_1"},
		"Content-Type":      {"application/json"},
		"User-Agent":        {"Everpost/1.2.3"},
		"Content-Length":    {strconv.Itoa(len(body))},
	}, got.Header)

	requireFailure(t, c.Send(t.Context(), Request{
		URL: receiver.URL(), Header: [][2]string{{"user-agent", "mine"}, {"content-type", "text/plain"}},
	}), retry.FailureNone, 200)
	got = receiver.Requests()[1]
	require.Equal(t, "/", got.Path)
	require.Equal(t, []string{"mine"}, got.Header["User-Agent"])
	require.Equal(t, []string{"text/plain"}, got.Header["Content-Type"])
	require.Equal(t, []string{"0"}, got.Header["Content-Length"])
}

func TestStoredResponse(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	r := c.Send(t.Context(), Request{URL: "http://" + answering(t, "HTTP/1.1 429 Slow down\r\n"+
		"Retry-After: 17\r\nDate: Fri, 07 Nov 2014 23:37:00 GMT\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1700000000\r\n"+
		"RateLimit: \"default\";r=50;t=30\r\nSet-Cookie: session=s3cr3t\r\nX-Other: a\r\nX-Other: b\r\nContent-Length: 4\r\n\r\nbusy")})
	requireFailure(t, r, retry.FailureNone, 429)
	r.Answer.ReceivedAt = time.Time{}
	require.Equal(t, retry.Answer{
		Status: 429, RetryAfter: "17", Date: "Fri, 07 Nov 2014 23:37:00 GMT",
		RateLimitRemaining: "0", RateLimitReset: "1700000000", RateLimit: `"default";r=50;t=30`,
	}, r.Answer)
	require.Equal(t, "busy", string(r.Body))
	require.False(t, r.Truncated)
	require.Equal(t, []string{"a", "b"}, r.Header["X-Other"])
	require.NotContains(t, r.Header, "Set-Cookie")

	answer := "HTTP/1.1 200 OK\r\nRateLimit-Remaining: 1\r\nRateLimit-Reset: 5\r\nContent-Length: 0\r\n\r\n"
	r = c.Send(t.Context(), Request{URL: "http://" + answering(t, answer)})
	require.Equal(t, "1", r.Answer.RateLimitRemaining)
	require.Equal(t, "5", r.Answer.RateLimitReset)
	require.Empty(t, r.Body)
}

func TestStoredHeadersAreBounded(t *testing.T) {
	t.Parallel()
	var answer strings.Builder
	answer.WriteString("HTTP/1.1 200 OK\r\nA: kept\r\nZ: kept\r\n")
	for i := range 30 {
		answer.WriteString("X-" + strconv.Itoa(i) + ": " + strings.Repeat("v", 1000) + "\r\n")
	}
	answer.WriteString("Retry-After: 9\r\nLocation: http://sso.example/login?SAMLRequest=" + strings.Repeat("s", 20_000) + "\r\n\r\n")
	r := setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, answer.String())})
	requireFailure(t, r, retry.FailureNone, 200)
	size := 0
	for name, values := range r.Header {
		size += fieldSize(name, values)
	}
	require.Equal(t, []string{"http://sso.example/login"}, r.Header["Location"], "where a redirect leads is stored all the same")
	require.LessOrEqual(t, size, maxStoredHeaderBytes+maxTarget)
	require.Greater(t, size, maxStoredHeaderBytes/2)
	require.Contains(t, r.Header, "A")
	require.Contains(t, r.Header, "Z")
	require.Equal(t, "9", r.Answer.RetryAfter)
}

func TestHeaderLimitIsExact(t *testing.T) {
	t.Parallel()
	for excess, failure := range map[int]retry.Failure{0: retry.FailureNone, 1: retry.FailureHeadersIncomplete} {
		start, end := "HTTP/1.1 200 OK\r\nX: ", "\r\nContent-Length: 9000\r\n\r\n"
		filler := strings.Repeat("v", MaxHeaderBytes-len(start)-len(end)+excess)
		r := setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, start+filler+end+strings.Repeat("b", 9000))})
		requireFailure(t, r, failure, 200)
		if failure == retry.FailureNone {
			require.Len(t, r.Body, 9000)
		} else {
			require.Equal(t, "headers_incomplete: headers above 64 KiB", r.Err)
		}
	}
}

// Up to 16 KiB are stored; up to 64 KiB are read so that the connection can be kept.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"length", "chunked", "close"} {
		for _, size := range []int{0, 1, MaxStoredBytes - 1, MaxStoredBytes, MaxStoredBytes + 1, MaxBodyBytes - 1, MaxBodyBytes, MaxBodyBytes + 1, 1 << 20} {
			t.Run(framing+" "+strconv.Itoa(size), func(t *testing.T) {
				t.Parallel()
				body := strings.Repeat("b", size)
				answer := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + body
				switch framing {
				case "chunked":
					answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
					if size > 0 {
						answer += strconv.FormatInt(int64(size), 16) + "\r\n" + body + "\r\n"
					}
					answer += "0\r\n\r\n"
				case "close":
					answer = "HTTP/1.1 200 OK\r\n\r\n" + body
				}
				stay := framing != "close"
				c := setup(t, Config{})
				r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + rawServer(t, func(conn *net.TCPConn, _ int) {
					if readRequest(bufio.NewReader(conn)) {
						_, _ = io.WriteString(conn, answer)
						if stay {
							hold(conn)
						}
					}
				})})
				requireFailure(t, r, retry.FailureNone, 200)
				require.Len(t, r.Body, min(size, MaxStoredBytes))
				require.Equal(t, size > MaxStoredBytes, r.Truncated)
				require.Equal(t, stay && size < MaxBodyBytes, c.pool.len() == 1)
			})
		}
	}
}

func TestGzipBombStaysSmall(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err := io.CopyN(zip, zeros{}, 10<<20)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.Less(t, bomb.Len(), MaxStoredBytes)
	r := setup(t, Config{}).Send(t.Context(), Request{
		Header: [][2]string{{"Accept-Encoding", "gzip"}},
		URL:    "http://" + answering(t, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "+strconv.Itoa(bomb.Len())+"\r\n\r\n"+bomb.String()),
	})
	requireFailure(t, r, retry.FailureNone, 200)
	require.Equal(t, bomb.Bytes(), r.Body, "as it was sent")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A receiver responds without reading the request: the response counts, and the client does
// not wait until the request is written.
func TestAnswerBeforeTheRequestIsRead(t *testing.T) {
	t.Parallel()
	c := setup(t, Config{})
	r := c.Send(t.Context(), Request{
		EndpointID: "ep_1",
		Body:       make([]byte, 32<<20), // more than two socket buffers hold
		URL: "http://" + rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = conn.Read(make([]byte, 10))
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno")
			<-t.Context().Done()
		}),
	})
	requireFailure(t, r, retry.FailureNone, 413)
	require.Equal(t, "no", string(r.Body))
	require.Zero(t, c.pool.len())
}

func TestLargeBodyArrivesWhole(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	c := setup(t, Config{})
	body := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // 256 KiB
	for range 3 {
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: receiver.URL(), Body: body}), retry.FailureNone, 200)
	}
	for _, request := range receiver.Requests() {
		require.True(t, bytes.Equal(body, request.Body))
	}
}

func TestExemptedReceiver(t *testing.T) {
	t.Parallel()
	receiver := receivertest.New(t)
	demo := Request{EndpointID: "ep_demo", TenantID: "demo", URL: receiver.URL() + "/demo"}
	c := setup(t, Config{Guard: NewGuard(GuardConfig{}), Exempt: Exemption{TenantID: demo.TenantID, URL: demo.URL, Addr: receiver.Addr()}})
	requireFailure(t, c.Send(t.Context(), demo), retry.FailureNone, 200)

	other := Request{EndpointID: "ep_other", TenantID: "other", URL: demo.URL}
	requireFailure(t, c.Send(t.Context(), other), retry.FailureDenied, 0)
	other.EndpointID = "ep_demo" // not even over the open connection
	requireFailure(t, c.Send(t.Context(), other), retry.FailureDenied, 0)
	demo.URL = receiver.URL() + "/elsewhere"
	requireFailure(t, c.Send(t.Context(), demo), retry.FailureDenied, 0)
	require.Equal(t, 1, receiver.Count())
}

// keepAliveServer responds with 200 on each connection until act takes over. act gets the
// number of the request on its connection, already read.
func keepAliveServer(t *testing.T, requests *atomic.Int32, act func(conn *net.TCPConn, w io.Writer, connection, request int) bool) string {
	t.Helper()
	return rawServer(t, func(conn *net.TCPConn, connection int) {
		br := bufio.NewReader(conn)
		for request := 1; readRequest(br); request++ {
			requests.Add(1)
			if act(conn, conn, connection, request) {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
}

// A receiver that closes a kept connection between two requests causes no failure.
func TestKeptConnectionClosedBetweenRequests(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	closed := make(chan struct{}, 10)
	url := "http://" + keepAliveServer(t, &requests, func(conn *net.TCPConn, w io.Writer, _, _ int) bool {
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_ = conn.Close()
		closed <- struct{}{}
		return true
	})
	c := setup(t, Config{})
	for range 5 {
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url}), retry.FailureNone, 200)
		<-closed
	}
	require.EqualValues(t, 5, requests.Load())
}

// As above, but the connection is closed after the check: the request is written and
// certainly not received, so it may be sent on another connection.
func TestKeptConnectionClosedUnderTheRequest(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			ca := newAuthority(t)
			config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
			closeNow, closed := make(chan struct{}), make(chan struct{})
			url := scheme + "://" + rawServer(t, func(conn *net.TCPConn, _ int) {
				var rw io.ReadWriteCloser = conn
				if scheme == "https" {
					rw = tls.Server(conn, config)
				}
				if readRequest(bufio.NewReader(rw)) {
					_, _ = io.WriteString(rw, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
				<-closeNow
				_ = rw.Close()
				close(closed)
			})
			c := setup(t, Config{RootCAs: ca.pool})
			request := Request{EndpointID: "ep_1", URL: url, Body: []byte("{}")}
			requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
			kept := takeAny(t, c, "ep_1")
			require.True(t, kept.noPendingData(true))
			close(closeNow)
			<-closed
			target, err := c.config.Guard.target(url, netip.AddrPort{})
			require.NoError(t, err)
			req, err := c.requestHead(target, &request, "")
			require.NoError(t, err)
			_, untouched := c.exchange(t.Context(), time.Now().Add(time.Minute), kept, req, &request, new(webhook.Times))
			require.True(t, untouched)
		})
	}
}

// A request that the receiver has got is not sent again, whatever the receiver does next
// and whatever headers the request has.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     func(*net.TCPConn)
		failure retry.Failure
		ended   bool // see Response.ReusedEnded
	}{
		"closed":      {func(conn *net.TCPConn) { _ = conn.Close() }, retry.FailureUnexpectedEOF, true},
		"half closed": {func(conn *net.TCPConn) { _ = conn.CloseWrite(); hold(conn) }, retry.FailureUnexpectedEOF, true},
		"reset":       {func(conn *net.TCPConn) { _ = conn.SetLinger(0) }, retry.FailureConnectionReset, true},
		"closed late": {func(conn *net.TCPConn) {
			late := time.NewTimer(reusedEndsWithin + 100*time.Millisecond)
			<-late.C
			_ = conn.Close()
		}, retry.FailureUnexpectedEOF, false},
		"an interim answer": {func(conn *net.TCPConn) { _, _ = io.WriteString(conn, "HTTP/1.1 103 Hints\r\n\r\n") }, retry.FailureUnexpectedEOF, false},
		"hang":              {func(conn *net.TCPConn) { hold(conn) }, retry.FailureTimeoutHeaders, false},
		"408 and closed": {func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 408 Idle\r\nConnection: close\r\n\r\n")
		}, retry.FailureNone, false},
		"part of an answer": {func(conn *net.TCPConn) { _, _ = io.WriteString(conn, "HTTP/1.1 2") }, retry.FailureUnexpectedEOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			url := "http://" + keepAliveServer(t, &requests, func(conn *net.TCPConn, _ io.Writer, connection, request int) bool {
				if connection == 1 && request == 2 {
					c.end(conn)
					return true
				}
				return false
			})
			timeout := 5 * time.Second
			if c.failure == retry.FailureTimeoutHeaders {
				timeout = short
			}
			client := setup(t, Config{})
			request := Request{
				EndpointID: "ep_1", URL: url, Body: []byte("{}"), Timeout: timeout,
				Header: [][2]string{{"Idempotency-Key", "1"}, {"X-Idempotency-Key", "1"}},
			}
			requireFailure(t, client.Send(t.Context(), request), retry.FailureNone, 200)
			require.Equal(t, 1, client.pool.len())
			r := client.Send(t.Context(), request)
			require.Equal(t, c.failure, r.Answer.Failure, r.Err)
			require.Equal(t, c.ended, r.ReusedEnded)
			require.EqualValues(t, 2, requests.Load(), "not a third time")
			require.Zero(t, client.pool.len())
		})
	}
}

// A new connection that ends without a response is the receiver's failure.
func TestFreshConnectionIsNotTriedTwice(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	url := "http://" + rawServer(t, func(*net.TCPConn, int) { connections.Add(1) })
	r := setup(t, Config{}).Send(t.Context(), Request{EndpointID: "ep_1", URL: url})
	require.Contains(t, []retry.Failure{retry.FailureUnexpectedEOF, retry.FailureConnectionReset}, r.Answer.Failure)
	require.False(t, r.ReusedEnded)
	require.EqualValues(t, 1, connections.Load())
}

// A new connection that dies before anything is written is the receiver's failure, too: it
// was not kept from an earlier request.
func TestFreshConnectionThatDiesAtOnce(t *testing.T) {
	t.Parallel()
	connected, reset := make(chan struct{}), make(chan struct{})
	url := "http://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		<-connected
		_ = conn.SetLinger(0)
		_ = conn.Close()
		close(reset)
	})
	c := setup(t, Config{})
	target, err := c.config.Guard.target(url, netip.AddrPort{})
	require.NoError(t, err)
	cn, _, err := c.dial(t.Context(), time.Now().Add(time.Minute), target, new(webhook.Times))
	require.NoError(t, err)
	close(connected)
	<-reset
	req, err := c.requestHead(target, &Request{}, "")
	require.NoError(t, err)
	r, untouched := c.exchange(t.Context(), time.Now().Add(time.Minute), cn, req, &Request{}, new(webhook.Times))
	require.False(t, untouched)
	require.Equal(t, retry.FailureConnectionReset, r.Answer.Failure, r.Err)
}

func takeAny(t *testing.T, c *Client, endpoint string) *conn {
	t.Helper()
	c.pool.mu.Lock()
	s := c.pool.byID[endpoint]
	c.pool.mu.Unlock()
	require.NotNil(t, s)
	kept := c.pool.take(s.id, time.Now(), time.Now().Add(time.Minute))
	require.NotNil(t, kept)
	t.Cleanup(kept.discard)
	return kept
}
