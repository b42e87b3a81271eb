package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Credentials come from files, and no command prints their secret parts.
func TestEndpointAuthFlags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	auth := write("auth.json", `{"type":"basic","username":"shop","password":"canary"}`)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certificate := write("client.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	private := write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))

	id := b.endpoint("--auth=@"+auth, "--client-certificate="+certificate, "--client-key="+private)
	got := b.json("endpoints", "get", id)
	require.Equal(t, map[string]any{"type": "basic", "username": "shop"}, got["auth"])
	require.Equal(t, "CN=shop", got["client_certificate"].(map[string]any)["subject"])
	require.NotContains(t, b.ok("endpoints", "get", id), "canary")

	b.ok("endpoints", "update", id, "--auth=null")
	got = b.json("endpoints", "get", id)
	require.Nil(t, got["auth"])
	require.NotNil(t, got["client_certificate"])

	for flag, want := range map[string]any{"1.2": "1.2", "any": nil} {
		b.ok("endpoints", "update", id, "--max-tls="+flag)
		got = b.json("endpoints", "get", id)["client_certificate"].(map[string]any)
		require.Equal(t, []any{want, "CN=shop"}, []any{got["max_tls"], got["subject"]})
	}
	b.ok("endpoints", "update", id, "--client-certificate="+certificate, "--client-key="+private, "--max-tls=1.2")
	require.Equal(t, "1.2", b.json("endpoints", "get", id)["client_certificate"].(map[string]any)["max_tls"])
	require.Contains(t, b.fails("endpoints", "update", id, "--client-key="+private), "--client-certificate and --client-key: one needs the other")
	none := filepath.Join(dir, "none")
	require.Contains(t, b.fails("endpoints", "update", id, "--client-key="+private, "--client-certificate="+none), "--client-certificate: ")
	incomplete := write("incomplete.json", `{"type":"basic","password":"canary"}`)
	require.Contains(t, b.fails("endpoints", "update", id, "--auth=@"+incomplete), "auth.username: is required")
	require.NotContains(t, b.fails("endpoints", "update", id, "--auth=@"+write("odd.json", `{"type":"canary"}`)), "canary")
	for _, inline := range []string{`{"type":"bearer","token":"canary"}`, "canary", " null", "null "} {
		text := b.fails("endpoints", "update", id, "--auth="+inline)
		require.Contains(t, text, "--auth: must be @file, - or null: every user of a machine can see a command line")
		require.NotContains(t, text, "canary")
	}
	require.Nil(t, b.json("endpoints", "get", id)["auth"])
}
