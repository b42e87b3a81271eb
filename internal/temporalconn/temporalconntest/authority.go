// Package temporalconntest has what tests of secured connections to Temporal need: an authority that issues
// certificates, and a proxy that adds TLS to a server without it.
package temporalconntest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority issues certificates.
type Authority struct {
	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &Authority{t: t, key: key}
	a.certificate = parse(t, a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	}, nil, key))
	return a
}

// sign returns a certificate in DER form. The authority signs its own at first.
func (a *Authority) sign(template, by *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.SerialNumber, template.NotBefore = serial, time.Now().Add(-2*time.Hour)
	if by == nil {
		by = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), a.key)
	require.NoError(a.t, err)
	return der
}

func parse(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Issue returns a certificate for a name or an address, which expires after the duration.
func (a *Authority) Issue(name string, life time.Duration) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der := a.sign(template, a.certificate, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parse(a.t, der)}
}

// Files are the paths of certificates and of a key.
type Files struct{ CA, Cert, Key string }

// NewFiles returns paths in a new directory.
func NewFiles(t testing.TB) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key")}
}

// Write replaces the file of authorities.
func (f Files) Write(a *Authority) {
	a.t.Helper()
	replace(a.t, f.CA, "CERTIFICATE", a.certificate.Raw)
}

// WriteClient replaces certificate and key of the client.
func (f Files) WriteClient(t testing.TB, c tls.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	replace(t, f.Key, "PRIVATE KEY", der)
	replace(t, f.Cert, "CERTIFICATE", c.Certificate[0])
}

// replace writes a file as tools that renew certificates do: by a rename.
func replace(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}
