package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// client returns a client certificate for a name.
func (a *authority) client(t *testing.T, name string, notAfter time.Time) webhook.ClientCertificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return webhook.ClientCertificate{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}
}

// mutual is a receiver that requires a client certificate of the authority and records the
// names in it.
type mutual struct {
	*receivertest.Receiver

	mu    sync.Mutex
	peers []string // by session
}

func newMutual(t *testing.T, ca *authority, highest uint16) *mutual {
	t.Helper()
	m := &mutual{}
	config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	config.ClientAuth, config.ClientCAs, config.MaxVersion = tls.RequireAndVerifyClientCert, ca.pool, highest
	config.VerifyConnection = func(s tls.ConnectionState) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.peers = append(m.peers, s.PeerCertificates[0].Subject.CommonName)
		return nil
	}
	m.Receiver = receivertest.NewWith(t, receivertest.Options{TLS: config})
	return m
}

func (m *mutual) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.peers...)
}

// Each version of each endpoint opens sessions with its own certificate, and no request
// uses a session that was opened with another.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		m := newMutual(t, ca, version)
		c := setup(t, Config{RootCAs: ca.pool})
		later := time.Now().Add(time.Hour)
		send := func(endpoint string, version int64, certificate webhook.ClientCertificate) {
			requireFailure(t, c.Send(t.Context(), Request{
				EndpointID: endpoint, Version: version, URL: m.URL(), Certificate: certificate, Timeout: patience,
				Auth: webhook.Auth{Kind: webhook.AuthBearer, Token: "beside"},
			}), retry.FailureNone, 200)
		}
		alice, bob, carol := ca.client(t, "alice", later), ca.client(t, "bob", later), ca.client(t, "carol", later)
		send("ep_1", 1, alice)
		send("ep_1", 1, alice)
		send("ep_2", 1, bob)
		send("ep_1", 2, carol)
		send("ep_2", 1, bob)
		send("ep_1", 2, carol)
		require.Equal(t, []string{"alice", "bob", "carol"}, m.seen())
		require.Equal(t, 3, connections(m.Receiver))
		require.Equal(t, "Bearer beside", m.Requests()[0].Header.Get("Authorization"))
	}
}

// A client certificate that the receiver rejects is a TLS failure, like an invalid
// certificate of the receiver: the configuration may be corrected. No byte of the request
// arrives.
func TestRejectedClientCertificates(t *testing.T) {
	t.Parallel()
	ca, otherCA := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	mixed := ca.client(t, "mixed", later)
	mixed.Key = ca.client(t, "other", later).Key
	const unreadable = "the client certificate is not a certificate in PEM"
	for name, c := range map[string]struct {
		certificate webhook.ClientCertificate
		cause       string
	}{
		"none":                 {webhook.ClientCertificate{}, "remote error: tls: "}, // TLS 1.3 alerts are more specific
		"of another authority": {otherCA.client(t, "mallory", later), "certificate"},
		"expired":              {ca.client(t, "late", time.Now().Add(-time.Hour)), "certificate"},
		"another's key":        {mixed, "the client certificate is not the unencrypted private key of the certificate, in PEM"},
		"no certificate":       {webhook.ClientCertificate{Certificate: "s3cr3t", Key: mixed.Key}, unreadable},
		"certificate cut":      {webhook.ClientCertificate{Certificate: mixed.Certificate[:99], Key: mixed.Key}, unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				m := newMutual(t, ca, version)
				request := Request{EndpointID: "ep_1", URL: m.URL(), Certificate: c.certificate, Timeout: patience}
				r := setup(t, Config{RootCAs: ca.pool}).Send(t.Context(), request)
				requireFailure(t, r, retry.FailureTLS, 0)
				require.Contains(t, r.Err, c.cause)
				require.Zero(t, m.Count())
				require.Empty(t, m.seen())
			}
		})
	}
}

// The client sends no certificate to a receiver that requests none.
func TestClientCertificateIsSentOnRequestOnly(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	receiver := receivertest.NewWith(t, receivertest.Options{TLS: config})
	certificate := ca.client(t, "alice", time.Now().Add(time.Hour))
	requireFailure(t, setup(t, Config{RootCAs: ca.pool}).Send(t.Context(), Request{URL: receiver.URL(), Certificate: certificate, Timeout: patience}),
		retry.FailureNone, 200)
}
