package config_test

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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func TestRootCAs(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, private.Public(), private)
	require.NoError(t, err)
	block := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	authority, key, broken := block("CERTIFICATE", der), block("PRIVATE KEY", []byte("canary")), block("CERTIFICATE", []byte("canary"))
	file := func(text string) config.Config {
		c := valid()
		c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		require.NoError(t, os.WriteFile(c.CAFile, []byte(text), 0o600))
		return c
	}

	c := valid()
	roots, err := c.RootCAs()
	require.NoError(t, err)
	require.Nil(t, roots, "the system's alone")
	for _, text := range []string{authority, "our own\n" + key + authority, authority + authority} {
		c := file(text)
		require.NoError(t, c.Validate())
		roots, err := c.RootCAs()
		require.NoError(t, err)
		want, err := x509.SystemCertPool()
		require.NoError(t, err)
		require.True(t, want.AppendCertsFromPEM([]byte(authority)))
		require.True(t, want.Equal(roots), "beside the system's")
	}
	for text, want := range map[string]string{
		"": "holds no certificate in PEM form", "rubbish": "holds no certificate", key: "holds no certificate",
		authority + broken: "certificate 2 in ", authority + authority[:100]: "1 of the 2 certificates in ",
		strings.Repeat(" ", 4<<20+1): "has more than 4194304 bytes",
	} {
		c := file(text)
		err := c.Validate()
		require.ErrorContains(t, err, "EVERPOST_CA_FILE: ")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, c.CAFile)
		require.NotContains(t, err.Error(), "canary")
	}

	vault := config.KEKs{}
	roots, err = vault.VaultRootCAs()
	require.NoError(t, err)
	require.Nil(t, roots, "the system's")
	vault.KEKVaultCAFile = file(authority).CAFile
	roots, err = vault.VaultRootCAs()
	require.NoError(t, err)
	want := x509.NewCertPool()
	require.True(t, want.AppendCertsFromPEM([]byte(authority)))
	require.True(t, want.Equal(roots), "instead of the system's")
	vault.KEKVaultCAFile = file(authority + broken).CAFile
	_, err = vault.VaultRootCAs()
	require.ErrorContains(t, err, "certificate 2 in "+vault.KEKVaultCAFile)

	for path, want := range map[string]string{t.TempDir(): "is a directory", "/does/not/exist": "no such file"} {
		c := valid()
		c.CAFile = path
		require.ErrorContains(t, c.Validate(), "EVERPOST_CA_FILE: ")
		require.ErrorContains(t, c.Validate(), want)
	}
}
