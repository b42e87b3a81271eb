package egress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// issued is a certificate with its key.
type issued struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate of an issuer, which is nil for a self-signed one. A name that begins with "CA " makes an authority; any
// other is for 127.0.0.1.
func issue(t *testing.T, issuer *issued, name string, change func(*x509.Certificate)) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if strings.HasPrefix(name, "CA ") {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &issued{cert, key}
}

// serving serves TLS with a certificate and what else is sent with it, and returns the receiver's URL.
func serving(t *testing.T, leaf *issued, others ...*issued) string {
	t.Helper()
	pair := tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key}
	for _, other := range others {
		pair.Certificate = append(pair.Certificate, other.cert.Raw)
	}
	return servingTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}})
}

func servingTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	return "https://" + rawServer(t, func(conn *net.TCPConn, _ int) { answerTLS(conn, config, "200 OK") })
}

// answerTLS answers one request within TLS.
func answerTLS(conn net.Conn, config *tls.Config, status string) {
	secure := tls.Server(conn, config)
	if readRequest(bufio.NewReader(secure)) {
		_, _ = io.WriteString(secure, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	_ = secure.Close()
}

// What is wrong with a certificate is named.
func TestCausesOfCertificates(t *testing.T) {
	t.Parallel()
	root, unknown := issue(t, nil, "CA trusted", nil), issue(t, nil, "CA private", nil)
	middle := issue(t, root, "CA middle", nil)
	yesterday := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	day := yesterday.UTC().Format(time.RFC3339)
	expired := func(c *x509.Certificate) { c.NotAfter = yesterday }
	stale := issue(t, root, "CA stale", expired)
	named := func(names ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = names, nil }
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("shop-%d.example", i)
	}
	sha1 := func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }
	soon := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	const prefix = "tls_invalid: "
	for want, url := range map[string]string{
		"": serving(t, issue(t, middle, "good", nil), middle),
		webhook.TLSNoNames + ` (subject alternative names), only the common name "hook.example", which nothing reads any more`: serving(t,
			issue(t, root, "hook.example", named())),
		webhook.TLSNoNames + ` (subject alternative names)`:             serving(t, issue(t, root, "", named())),
		webhook.TLSOtherHost + `; it is for "a.example", "*.b.example"`: serving(t, issue(t, root, "x", named("a.example", "*.b.example"))),
		webhook.TLSOtherHost + `; it is for "shop-0.example", "shop-1.example", "shop-2.example", ` +
			`"shop-3.example", "shop-4.example", "shop-5.example" and 34 more`: serving(t,
			issue(t, root, "x", named(many...))),
		"the " + webhook.TLSExpired + day: serving(t, issue(t, root, "x", expired)),
		"the " + webhook.TLSNotYet + soon.UTC().Format(time.RFC3339): serving(t,
			issue(t, root, "x", func(c *x509.Certificate) { c.NotBefore = soon })),
		`the issuer's "CA stale" ` + webhook.TLSExpired + day:                                serving(t, issue(t, stale, "x", nil), stale),
		webhook.TLSNoIssuer + `: the receiver sent no certificate of the issuer "CA middle"`: serving(t, issue(t, middle, "x", nil)),
		webhook.TLSUntrusted + `: "CA private"`:                                              serving(t, issue(t, unknown, "x", nil), unknown),
		webhook.TLSSelfSigned:                                                                serving(t, issue(t, nil, "x", nil)),
		`the certificate of "x" is signed with SHA-1 or MD5, which is not accepted any more`: serving(t, issue(t, root, "x", sha1)),
		"x509: certificate specifies an incompatible key usage": serving(t, issue(t, root, "x", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			trusted := x509.NewCertPool()
			trusted.AddCert(root.cert)
			r := setup(t, Config{RootCAs: trusted}).Send(t.Context(), Request{URL: url, Timeout: patience})
			if want == "" {
				requireFailure(t, r, retry.FailureNone, 200)
				return
			}
			requireFailure(t, r, retry.FailureTLS, 0)
			require.Equal(t, prefix+want, r.Err)
		})
	}
}

// What receivers hold against the handshake, as far as their alerts tell.
func TestCausesOfHandshakes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	certified := ca.client(t, "shop", time.Now().Add(time.Hour))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	rsaPair := func(config *tls.Config) {
		template := &x509.Certificate{SerialNumber: big.NewInt(9), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	}
	for name, c := range map[string]struct {
		change      func(*tls.Config)
		certificate webhook.ClientCertificate
		want        string
	}{
		"RSA key exchange only": {func(c *tls.Config) {
			rsaPair(c)
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_256_GCM_SHA384}
		}, webhook.ClientCertificate{}, "remote error: tls: handshake failure; the receiver " + webhook.TLSTooOld},
		"TLS 1.1 only": {func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		}, webhook.ClientCertificate{}, "the receiver " + webhook.TLSTooOld},
		"TLS 1.3 only, and 1.2 at most": {func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
			webhook.ClientCertificate{Certificate: certified.Certificate, Key: certified.Key, MaxTLS: webhook.MaxTLS12}, "the receiver " + webhook.TLSTooOld},
		"no client certificate": {func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
			webhook.ClientCertificate{}, webhook.TLSCertificateMissing},
		"no client certificate, 1.2": {func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 },
			webhook.ClientCertificate{}, webhook.TLSCertificateMissing},
		"another client certificate": {func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		}, certified, webhook.TLSCertificateRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
			c.change(config)
			r := setup(t, Config{RootCAs: ca.pool}).Send(t.Context(), Request{URL: servingTLS(t, config), Certificate: c.certificate, Timeout: patience})
			requireFailure(t, r, retry.FailureTLS, 0)
			require.Contains(t, r.Err, c.want)
		})
	}
}
