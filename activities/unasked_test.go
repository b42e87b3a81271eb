package activities_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/webhook"
)

// A receiver that refuses the request over TLS 1.3 and never asked for the client certificate: the attempt says so, because many
// ask for it by path, which TLS 1.3 does not allow. If it did ask, or speaks 1.2, the refusal has another cause.
func TestAttemptNamesACertificateThatWasNotAskedFor(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pair := webhook.ClientCertificate{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
	twelve := pair
	twelve.MaxTLS = webhook.MaxTLS12
	for _, c := range []struct {
		status      int
		auth        tls.ClientAuthType
		certificate webhook.ClientCertificate
		want        string
	}{
		{401, tls.NoClientCert, pair, webhook.CertificateUnasked},
		{403, tls.NoClientCert, pair, webhook.CertificateUnasked},
		{404, tls.NoClientCert, pair, ""},
		{204, tls.NoClientCert, pair, ""},
		{403, tls.RequestClientCert, pair, ""},
		{403, tls.NoClientCert, twelve, ""},
		{403, tls.NoClientCert, webhook.ClientCertificate{}, ""},
	} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }))
		server.TLS = &tls.Config{ClientAuth: c.auth}
		server.StartTLS()
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		client := egress.New(egress.Config{RootCAs: roots, Guard: egress.NewGuard(egress.GuardConfig{
			AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})})
		target := &webhook.Target{
			Endpoint: webhook.Endpoint{ID: webhook.NewEndpointID(), TenantID: tenant, URL: server.URL, Signature: webhook.SignatureV1,
				Certificate: c.certificate},
			Secrets: []string{secret},
		}
		made, err := activities.NewTests(client).Send(t.Context(), target, "order.paid", []byte(payload))
		require.NoError(t, err)
		require.Equal(t, []any{c.status, c.want}, []any{made.Outcome.Status, made.Error})
		client.Close()
		server.Close()
	}
}
