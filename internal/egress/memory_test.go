package egress

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// manyFields are very many short fields.
func manyFields() string {
	var text strings.Builder
	for i := 0; text.Len() < MaxHeaderBytes/2; i++ {
		fmt.Fprintf(&text, "x%x:\n", i)
	}
	return text.String()
}

// longFields is a long head of few fields, without its end.
func longFields() string {
	return strings.Repeat("X-Long: "+strings.Repeat("y", 300)+"\r\n", 200)
}

// manyTrailers declares trailers, of which net/http makes a map.
func manyTrailers(size int) string {
	var text strings.Builder
	text.WriteString("Transfer-Encoding: chunked\r\nTrailer: x")
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, ",x%x", i)
	}
	return text.String() + "\r\n\r\n"
}

// certificateWithoutEnd is a ServerHello of TLS 1.2 and a Certificate message of the
// greatest length that crypto/tls accepts, without its last byte.
func certificateWithoutEnd() []byte {
	hello := append([]byte{3, 3}, make([]byte, 32)...) // version, random
	hello = append(hello, 0, 0xc0, 0x2f, 0)            // no session id, ECDHE_RSA_WITH_AES_128_GCM_SHA256, no compression
	const most = 256 << 10
	var text bytes.Buffer
	inRecords(&text, append([]byte{2, 0, 0, byte(len(hello))}, hello...))
	inRecords(&text, append([]byte{11, most >> 16, most >> 8 & 255, most & 255}, make([]byte, most-1)...))
	return text.Bytes()
}

// inRecords writes handshake messages as records of TLS 1.2.
func inRecords(text *bytes.Buffer, messages []byte) {
	for len(messages) > 0 {
		n := min(len(messages), 16<<10)
		text.Write(binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(n)))
		text.Write(messages[:n])
		messages = messages[n:]
	}
}

// withChain serves https with a valid certificate and an altered configuration, and sends
// no response.
func withChain(change func(t *testing.T, config *tls.Config, junk *x509.Certificate)) func(*testing.T, *authority) string {
	return func(t *testing.T, ca *authority) string {
		t.Helper()
		config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
		change(t, config, &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "junk"}, NotAfter: time.Now().Add(time.Hour)})
		return "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
			if session := tls.Server(conn, config); readRequest(bufio.NewReader(session)) {
				hold(session)
			}
		})
	}
}

// addJunk appends a certificate of an unknown issuer to the chain, that many times.
func addJunk(t *testing.T, config *tls.Config, junk *x509.Certificate, times int) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, junk, junk, key.Public(), key)
	require.NoError(t, err)
	for range times {
		config.Certificates[0].Certificate = append(config.Certificates[0].Certificate, der)
	}
}

func manyCertificates(times int) func(*testing.T, *authority) string {
	return withChain(func(t *testing.T, config *tls.Config, junk *x509.Certificate) {
		t.Helper()
		addJunk(t, config, junk, times)
	})
}

func manyURIs(t *testing.T, config *tls.Config, junk *x509.Certificate) {
	t.Helper()
	for range 10_000 {
		junk.URIs = append(junk.URIs, &url.URL{})
	}
	addJunk(t, config, junk, 1)
}

func manyNames(t *testing.T, config *tls.Config, junk *x509.Certificate) {
	t.Helper()
	for range 1001 {
		junk.DNSNames = append(junk.DNSNames, "a")
	}
	addJunk(t, config, junk, 1)
}

func manyTimestamps(t *testing.T, config *tls.Config, _ *x509.Certificate) {
	t.Helper()
	config.Certificates[0].SignedCertificateTimestamps = slicesOf([]byte{1}, maxPeerTimestamps+1)
}

func slicesOf(one []byte, times int) [][]byte {
	all := make([][]byte, times)
	for i := range all {
		all[i] = one
	}
	return all
}

// memoryClasses are hostile receivers that make the client allocate memory and keep it.
func memoryClasses() map[string]hostile {
	const answer = "HTTP/1.1 200 OK\r\n"
	certificate := certificateWithoutEnd() // built once: copies would be counted
	session := hostile{reason: "tls_invalid", err: "tls_invalid"}
	silence := hostile{reason: "timeout_headers", err: "timeout_headers"}
	endless := hostile{reason: "delivered", err: "headers_incomplete"}
	of := func(h hostile, url func(*testing.T, *authority) string) hostile {
		h.url = url
		return h
	}
	return map[string]hostile{
		"many headers, then hold":             of(endless, after(answer+manyFields(), hold)),
		"many headers after 1xx, then hold":   of(endless, after("HTTP/1.1 103 Early Hints\r\n\r\n"+answer+manyFields()[:30<<10], hold)),
		"long headers, then hold":             of(endless, after(answer+longFields(), hold)),
		"long headers, body, then hold":       {url: after(answer+longFields()+"Content-Length: 9\r\n\r\nab", hold), reason: "delivered", err: "timeout_body"},
		"many trailers, then hold":            {url: after(answer+manyTrailers(MaxHeaderBytes-100), hold), reason: "delivered", err: "timeout_body"},
		"some trailers, then hold":            {url: after(answer+manyTrailers(3<<10), hold), reason: "delivered", err: "timeout_body"},
		"certificate, then hold":              of(session, underTLS(func(conn net.Conn) { _, _ = conn.Write(certificate); hold(conn) })),
		"many certificates, then hold":        of(session, manyCertificates(60)),
		"too many certificates, then hold":    of(session, manyCertificates(maxPeerCertificates)),
		"certificates enough, then hold":      of(silence, manyCertificates(maxPeerCertificates-1)),
		"URIs in a certificate, then hold":    of(session, withChain(manyURIs)),
		"names in a certificate, then hold":   of(session, withChain(manyNames)),
		"timestamps of certificate, and hold": of(session, withChain(manyTimestamps)),
	}
}

// Five hundred receivers of one memory class at once: the process grows by less than 64
// MiB. The classes with certificates are excluded: half of that memory is the receivers'
// own here.
func TestMemoryOfFiveHundredCostlyReceivers(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	const requests, limit = 500, 64 << 20
	classes := memoryClasses()
	for _, name := range []string{
		"many headers, then hold", "long headers, then hold", "long headers, body, then hold", "many trailers, then hold", "certificate, then hold",
	} {
		t.Run(name, func(t *testing.T) {
			ca, h := newAuthority(t), classes[name]
			c := setup(t, Config{RootCAs: ca.pool})
			address := h.url(t, ca)
			runtime.GC()
			before := inUse()
			peak := watchMemory(t)
			var sending sync.WaitGroup
			for i := range requests {
				sending.Go(func() {
					if wrong := h.wrong(h.attempt(t, c, "ep_"+strconv.Itoa(i), address, nil, 5*time.Second)); wrong != "" {
						t.Error(wrong)
					}
				})
			}
			sending.Wait()
			grown := peak() - before
			require.Less(t, grown, int64(limit))
			t.Logf("grown by %d KiB", grown>>10)
		})
	}
}

// Ordinary large responses are read: a head of the greatest size, and long responses over
// TLS, one after the other on one connection.
func TestLargeAnswersAreRead(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("y", MaxBodyBytes-2)
	answer := func(head string) string {
		return "HTTP/1.1 200 OK\r\n" + head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	fields := func(n, length int) string {
		return strings.Repeat("X-Field: "+strings.Repeat("y", length-len("X-Field: \r\n"))+"\r\n", n)
	}
	all := map[string]string{
		"short":        answer(""),
		"many fields":  answer(fields(1000, 12)),
		"long":         answer(fields(31, 1000)),
		"longest":      "HTTP/1.1 204 OK\r\n" + fields(8, (MaxHeaderBytes-len("HTTP/1.1 204 OK\r\n\r\n"))/8) + "\r\n",
		"after 1xx":    "HTTP/1.1 103 Hints\r\n" + fields(14, 1000) + "\r\n" + answer(fields(14, 1000)),
		"with no \\r":  strings.ReplaceAll(answer(fields(10, 1000)), "\r", ""),
		"with commas":  answer("X-Many: " + strings.Repeat("a, trailer:", 900) + "\r\n"),
		"of two kinds": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n" + fields(6, 1000) + "\r\n" + answer(fields(6, 1000)),
	}
	ca := newAuthority(t)
	config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	addJunk(t, config, &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: strings.Repeat("x", 10<<10)}}, 1) // a long handshake
	config.DynamicRecordSizingDisabled = true
	for name, text := range all {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+" over "+scheme, func(t *testing.T) {
				t.Parallel()
				var connections sync.Map
				address := rawServer(t, func(conn *net.TCPConn, number int) {
					connections.Store(number, true)
					session := net.Conn(conn)
					if scheme == "https" {
						session = tls.Server(conn, config)
					}
					for br := bufio.NewReader(session); readRequest(br); {
						_, _ = io.WriteString(session, text)
					}
				})
				c := setup(t, Config{RootCAs: ca.pool})
				for range 3 {
					r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: scheme + "://" + address, Timeout: patience})
					require.Empty(t, r.Err)
					require.Equal(t, retry.FailureNone, r.Answer.Failure)
					require.Equal(t, r.Answer.Status == 200, r.Truncated)
				}
				_, another := connections.Load(2)
				require.False(t, another, "the connection is kept")
			})
		}
	}
}

// Bytes that follow a response are not taken for the next one: the connection is closed,
// also when a long head ends exactly at the end of the reader's buffer.
func TestNothingIsLeftAfterALongHead(t *testing.T) {
	t.Parallel()
	const start, end = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ", "\r\n\r\n"
	for size := 8 << 10; size < 8<<10+64; size++ {
		for _, extra := range []string{"", "HTTP/1.1 200 OK\r\n\r\n"} {
			answer := start + strings.Repeat("x", size-len(start)-len(end)) + end + extra
			c := setup(t, Config{})
			address := rawServer(t, afterReading(func(conn *net.TCPConn) {
				_, _ = io.WriteString(conn, answer)
				hold(conn)
			}))
			requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + address, Timeout: patience}), retry.FailureNone, 200)
			require.Equal(t, extra == "", c.pool.len() == 1, size)
		}
	}
}

// The bytes read below TLS are bounded until application data arrives.
func TestWireIsBounded(t *testing.T) {
	t.Parallel()
	address := rawServer(t, func(conn *net.TCPConn, _ int) { flood(conn, strings.Repeat("x", 4<<10)) })
	tcp, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer tcp.Close()
	below := &wire{Conn: tcp}
	n, err := io.Copy(io.Discard, below)
	require.ErrorIs(t, err, errTooMuchTLS)
	require.EqualValues(t, maxSilentWire, n)

	below.silent = 0
	n, err = io.CopyN(io.Discard, iotest.OneByteReader(&tlsConn{Conn: below, wire: below}), 3*maxSilentWire)
	require.NoError(t, err, "an answer was read in between")
	require.EqualValues(t, 3*maxSilentWire, n)
}
