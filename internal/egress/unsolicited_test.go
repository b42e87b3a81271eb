package egress

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
)

// Responses of the receiver in these tests.
const (
	honest    = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhonest"
	forged    = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
	noContent = "HTTP/1.1 204 No Content\r\n\r\n"
)

// ways are the tested connections: the scheme, and the TLS version.
var ways = map[string]uint16{"http": 0, "TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// gathering buffers writes so that several TLS records leave in one segment.
type gathering struct {
	net.Conn

	on   bool
	held bytes.Buffer
}

func (g *gathering) Write(p []byte) (int, error) {
	if g.on {
		return g.held.Write(p)
	}
	return g.Conn.Write(p)
}

// speaker is the receiver's side of a connection.
type speaker struct {
	br   *bufio.Reader
	say  func(records ...string) // each in its own TLS record, all at once
	conn *net.TCPConn
}

// speaking opens the receiver's side, with TLS unless config is nil.
func speaking(conn *net.TCPConn, config *tls.Config) speaker {
	if config == nil {
		return speaker{bufio.NewReader(conn), func(records ...string) { _, _ = io.WriteString(conn, strings.Join(records, "")) }, conn}
	}
	below := &gathering{Conn: conn}
	session := tls.Server(below, config)
	_ = session.Handshake()
	return speaker{bufio.NewReader(session), func(records ...string) {
		below.on = true
		for _, record := range records {
			_, _ = io.WriteString(session, record)
		}
		_, _ = conn.Write(below.held.Bytes())
		below.held.Reset()
		below.on = false
	}, conn}
}

// Unsolicited bytes after a response must not become the response to the next request,
// however they arrive: in the response's TLS record, in a record that crypto/tls has read
// before the connection is kept, or later.
func TestUnsolicitedAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ now, later []string }{
		"an answer, with the answer":   {[]string{honest + forged}, nil},
		"an answer, in the same go":    {[]string{honest, forged}, nil},
		"an answer, later":             {[]string{honest}, []string{forged}},
		"a body of a 204":              {[]string{noContent + "hello"}, nil},
		"a body of a 204, in the same": {[]string{noContent, "hello"}, nil},
		"a body of a 204, later":       {[]string{noContent}, []string{"hello"}},
		"a line's end":                 {[]string{honest + "\r\n"}, nil},
		"a line's end, in the same go": {[]string{honest, "\r\n"}, nil},
		"a line's end, later":          {[]string{honest}, []string{"\r\n"}},
		"one byte for each record":     {append([]string{honest}, strings.Split(forged, "")...), nil},
	} {
		for way, version := range ways {
			for _, proxied := range []bool{false, true} {
				if proxied && c.later != nil { // the proxy forwards it later
					continue
				}
				t.Run(name+", "+way+map[bool]string{true: ", through a proxy"}[proxied], func(t *testing.T) {
					t.Parallel()
					unsolicited(t, version, proxied, c.now, c.later)
				})
			}
		}
	}
}

// await returns also when the test has failed.
func await(t *testing.T, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-t.Context().Done():
	}
}

func unsolicited(t *testing.T, version uint16, proxied bool, now, later []string) {
	t.Helper()
	ca := newAuthority(t)
	var requests, connections atomic.Int32
	next, said := make(chan struct{}), make(chan struct{}, 2)
	var config *tls.Config
	if version != 0 {
		config = ca.config(t, "receiver.example", time.Now().Add(time.Hour))
		config.MaxVersion = version
	}
	address := rawServer(t, func(conn *net.TCPConn, connection int) {
		receiver := speaking(conn, config)
		for readRequest(receiver.br) {
			requests.Add(1)
			if connection > 1 {
				connections.Store(int32(connection))
				receiver.say(honest)
				continue
			}
			receiver.say(now...)
			await(t, next)
			receiver.say(later...)
			said <- struct{}{}
			hold(conn)
			return
		}
	})
	c, url := proxiedClient(t, ca, address, proxied, version != 0)
	request := Request{EndpointID: "ep_1", URL: url, Timeout: patience}
	r := c.Send(t.Context(), request)
	require.Empty(t, r.Err)
	require.Contains(t, []int{200, 204}, r.Answer.Status)
	if later == nil {
		require.Zero(t, c.pool.len(), "it is known before the connection is kept")
	}
	close(next)
	<-said
	r = c.Send(t.Context(), request)
	requireFailure(t, r, retry.FailureNone, 200)
	require.Equal(t, "honest", string(r.Body))
	require.EqualValues(t, 2, requests.Load())
	require.EqualValues(t, 2, connections.Load(), "which connection the second request came over")
}

// proxiedClient returns a client and a URL that leads it to the address: through a proxy by
// a name that stands for a public address, or directly.
func proxiedClient(t *testing.T, ca *authority, address string, proxied, secure bool) (*Client, string) {
	t.Helper()
	scheme := map[bool]string{false: "http://", true: "https://"}[secure]
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	stands := netip.MustParseAddr("127.0.0.1")
	config := Config{Guard: local(), RootCAs: ca.pool}
	if proxied {
		stands = netip.MustParseAddr("93.184.215.14")
		config.Guard, config.Proxy = strictly(), proxyTo(t, address, always("")).url
	}
	config.Resolver = resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) { return []netip.Addr{stands}, 0 })
	return setup(t, config), scheme + "receiver.example.:" + port + "/"
}

// Connections are kept over TLS, too, and the check for pending data loses nothing.
func TestKeptOverTLS(t *testing.T) {
	t.Parallel()
	for way, version := range ways {
		for _, proxied := range []bool{false, true} {
			t.Run(way+map[bool]string{true: ", through a proxy"}[proxied], func(t *testing.T) {
				t.Parallel()
				ca := newAuthority(t)
				options := receivertest.Options{}
				if version != 0 {
					options.TLS = ca.config(t, "receiver.example", time.Now().Add(time.Hour))
					options.TLS.MaxVersion = version
				}
				receiver := receivertest.NewWith(t, options)
				receiver.Default(receivertest.Step{Body: strings.Repeat("b", 20<<10)}) // more than one record
				c, url := proxiedClient(t, ca, receiver.Addr().String(), proxied, version != 0)
				for i := range 20 {
					r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Body: []byte("{}"), Timeout: patience})
					requireFailure(t, r, retry.FailureNone, 200)
					if i == 10 {
						kept := connOf(c.pool.oldest.Front())
						for range 100 {
							require.True(t, kept.noPendingData(true))
						}
					}
				}
				require.Equal(t, 1, connections(receiver))
			})
		}
	}
}

// tlsRecords writes TLS 1.3 records of any type in place of a tls.Conn, with its keys:
// messages that OpenSSL, Java and others send after the handshake and crypto/tls's server
// does not.
type tlsRecords struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	number uint64
}

// Content types, RFC 8446, section 5.1.
const (
	alertRecord     = 21
	handshakeRecord = 22
	dataRecord      = 23
)

func newTLSRecords(t *testing.T, secret []byte) *tlsRecords {
	t.Helper()
	key := expand(t, secret, "key", 16)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return &tlsRecords{secret: secret, aead: aead, iv: expand(t, secret, "iv", 12)}
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func expand(t *testing.T, secret []byte, label string, length int) []byte {
	t.Helper()
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(append(info, "tls13 "+label...), 0)
	out, err := hkdf.Expand(sha256.New, secret, string(info), length)
	require.NoError(t, err)
	return out
}

func (r *tlsRecords) seal(kind byte, content string) string {
	header := []byte{dataRecord, 3, 3}
	header = binary.BigEndian.AppendUint16(header, uint16(len(content)+1+r.aead.Overhead()))
	nonce := bytes.Clone(r.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(r.number >> (56 - 8*i))
	}
	r.number++
	return string(r.aead.Seal(header, nonce, append([]byte(content), kind), header))
}

func (r *tlsRecords) data(content string) string { return r.seal(dataRecord, content) }

// ticket is a NewSessionTicket (RFC 8446, section 4.6.1).
func (r *tlsRecords) ticket() string {
	body := "\x00\x00\x1c\x20" + "\x01\x02\x03\x04" + "\x01n" + "\x00\xc0" + strings.Repeat("t", 0xc0) + "\x00\x00"
	return r.seal(handshakeRecord, "\x04\x00\x00"+string([]byte{byte(len(body))})+body)
}

// keyUpdate is a KeyUpdate (section 4.6.3), which changes the keys that follow it.
func (r *tlsRecords) keyUpdate(t *testing.T, asks bool) string {
	t.Helper()
	sealed := r.seal(handshakeRecord, "\x18\x00\x00\x01"+map[bool]string{false: "\x00", true: "\x01"}[asks])
	*r = *newTLSRecords(t, expand(t, r.secret, "traffic upd", sha256.Size))
	return sealed
}

// TLS messages between two requests do not close the connection, unless they end the
// session.
func TestTLSBetweenRequests(t *testing.T) {
	t.Parallel()
	ticket := func(_ *testing.T, r *tlsRecords) string { return r.ticket() }
	tickets := func(_ *testing.T, r *tlsRecords) string { return r.ticket() + r.ticket() }
	noData := func(_ *testing.T, r *tlsRecords) string { return r.data("") }
	half := func(record string) (string, string) { return record[:len(record)/2], record[len(record)/2:] }
	for name, c := range map[string]struct {
		now, later  func(*testing.T, *tlsRecords) string // after the answer: with it, and before the next request
		connections int32
	}{
		"nothing":              {nil, nil, 1},
		"ticket at once":       {ticket, nil, 1},
		"ticket later":         {nil, ticket, 1},
		"tickets":              {tickets, tickets, 1},
		"new keys":             {nil, func(t *testing.T, r *tlsRecords) string { t.Helper(); return r.keyUpdate(t, false) }, 1},
		"new keys of both":     {nil, func(t *testing.T, r *tlsRecords) string { t.Helper(); return r.keyUpdate(t, true) }, 1},
		"new keys, at once":    {func(t *testing.T, r *tlsRecords) string { t.Helper(); return r.keyUpdate(t, true) }, nil, 1},
		"no data":              {noData, noData, 1},
		"ticket, then data":    {nil, func(_ *testing.T, r *tlsRecords) string { return r.ticket() + r.data(forged) }, 2},
		"new keys, then data":  {func(t *testing.T, r *tlsRecords) string { t.Helper(); return r.keyUpdate(t, true) + r.data(forged) }, nil, 2},
		"half a ticket":        {func(_ *testing.T, r *tlsRecords) string { first, _ := half(r.ticket()); return first }, nil, 2},
		"half an answer":       {func(_ *testing.T, r *tlsRecords) string { first, _ := half(r.data(forged)); return first }, nil, 2},
		"a header's beginning": {nil, func(_ *testing.T, r *tlsRecords) string { return r.data(forged)[:3] }, 2},
		"farewell":             {nil, func(_ *testing.T, r *tlsRecords) string { return r.seal(alertRecord, "\x01\x00") }, 2},
		"alert":                {nil, func(_ *testing.T, r *tlsRecords) string { return r.seal(alertRecord, "\x02\x50") }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			betweenRequests(t, c.now, c.later, c.connections)
		})
	}
	t.Run("a ticket in two halves", func(t *testing.T) {
		t.Parallel()
		var rest string
		betweenRequests(t,
			func(_ *testing.T, r *tlsRecords) (first string) { first, rest = half(r.ticket()); return first },
			func(*testing.T, *tlsRecords) string { return rest }, 1)
	})
}

func betweenRequests(t *testing.T, now, later func(*testing.T, *tlsRecords) string, want int32) {
	t.Helper()
	ca := newAuthority(t)
	config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	config.MinVersion, config.SessionTicketsDisabled = tls.VersionTLS13, true
	var requests, connections atomic.Int32
	next, said := make(chan struct{}), make(chan struct{}, 2)
	url := "https://" + rawServer(t, func(conn *net.TCPConn, connection int) {
		connections.Add(1)
		var keys bytes.Buffer
		config := config.Clone()
		config.KeyLogWriter = &keys
		session := tls.Server(conn, config)
		if session.Handshake() != nil || session.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			return
		}
		out := newTLSRecords(t, serverSecret(t, keys.String()))
		for br, first := bufio.NewReader(session), connection == 1; readRequest(br); first = false {
			requests.Add(1)
			text := out.data(honest)
			if first && now != nil {
				text += now(t, out)
			}
			_, _ = io.WriteString(conn, text)
			if first {
				await(t, next)
				if later != nil {
					_, _ = io.WriteString(conn, later(t, out))
				}
				said <- struct{}{}
			}
		}
	})
	c := setup(t, Config{RootCAs: ca.pool})
	request := Request{EndpointID: "ep_1", URL: url, Timeout: patience}
	requireFailure(t, c.Send(t.Context(), request), retry.FailureNone, 200)
	close(next)
	<-said
	for range 2 {
		r := c.Send(t.Context(), request)
		requireFailure(t, r, retry.FailureNone, 200)
		require.Equal(t, "honest", string(r.Body))
	}
	require.EqualValues(t, 3, requests.Load())
	require.Equal(t, want, connections.Load())
}

func serverSecret(t *testing.T, log string) []byte {
	t.Helper()
	_, line, found := strings.Cut(log, "SERVER_TRAFFIC_SECRET_0 ")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	_, text, _ := strings.Cut(line, " ")
	secret, err := hex.DecodeString(text)
	require.NoError(t, err)
	return secret
}

// Both implementations of a non-blocking read: the one for Unix and the one for all other
// systems.
func TestReadNow(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*net.TCPConn, []byte) (int, error){
		"without waiting": readNow,
		"by waiting":      func(c *net.TCPConn, p []byte) (int, error) { return readWithin(c, p, time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			say, said := make(chan string), make(chan struct{})
			address := rawServer(t, func(conn *net.TCPConn, _ int) {
				for text := range say {
					_, _ = io.WriteString(conn, text)
					said <- struct{}{}
				}
				_ = conn.Close()
				close(said)
			})
			plain, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer plain.Close()
			conn, err := asTCPConn(plain)
			require.NoError(t, err)
			p := make([]byte, 10)
			for _, text := range []string{"", "abc", "de"} {
				say <- text
				<-said
				n, err := read(conn, p)
				if text == "" {
					require.ErrorIs(t, err, errNothing)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, text, string(p[:n]))
				_, err = read(conn, p)
				require.ErrorIs(t, err, errNothing)
			}
			close(say)
			<-said
			_, err = read(conn, p)
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, conn.Close())
			_, err = read(conn, p)
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}
