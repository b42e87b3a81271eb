package egress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// local allows the test's own machine.
func local() *Guard {
	return NewGuard(GuardConfig{
		AllowHTTP:    true,
		AnyPort:      true,
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
}

func setup(t testing.TB, config Config) *Client {
	t.Helper()
	if config.Guard == nil {
		config.Guard = local()
	}
	c := New(config)
	c.minNotFoundTime = 0                            // there are hundreds of names
	c.names.keepAnswers, c.names.keepFailures = 0, 0 // name servers change their answers
	t.Cleanup(c.Close)
	return c
}

// rawServer runs serve for each connection and closes the connection afterwards and at the
// end of the test. serve gets the connection's number, counted from 1.
func rawServer(t testing.TB, serve func(conn *net.TCPConn, number int)) string {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	var mu sync.Mutex
	var open []*net.TCPConn
	var serving sync.WaitGroup
	serving.Go(func() {
		for number := 1; ; number++ {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			serving.Go(func() {
				defer conn.Close()
				serve(conn, number)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return listener.Addr().String()
}

// readRequest reads one whole request and reports whether there was one.
func readRequest(br *bufio.Reader) bool {
	req, err := http.ReadRequest(br)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// answering sends one fixed response to the first request of each connection.
func answering(t testing.TB, answer string) string {
	t.Helper()
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		if readRequest(bufio.NewReader(conn)) {
			_, _ = io.WriteString(conn, answer)
		}
	})
}

// hold blocks until the sender closes the connection.
func hold(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// drip writes the text repeatedly until the client closes the connection.
func drip(conn net.Conn, text string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

// flood is drip without a pause.
func flood(conn net.Conn, text string) {
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// config returns a server's TLS configuration for a name or an address.
func (a *authority) config(t testing.TB, host string, notAfter time.Time) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
