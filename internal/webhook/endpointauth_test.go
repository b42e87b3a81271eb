package webhook_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// certify makes a certificate for a public key, in PEM.
func certify(t *testing.T, public any) string {
	t.Helper()
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, authority)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func keyText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func pairOf(t *testing.T, key crypto.Signer) webhook.ClientCertificate {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return webhook.ClientCertificate{Certificate: certify(t, key.Public()), Key: keyText("PRIVATE KEY", der)}
}

func ecdsaKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return key
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key
}

// The kinds and sizes of client keys that are accepted and refused.
func TestKindsOfClientKeys(t *testing.T) {
	t.Parallel()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	medium := rsaKey(t, 2048)
	accepted := map[string]webhook.ClientCertificate{
		"P-256": pairOf(t, ecdsaKey(t, elliptic.P256())), "P-384": pairOf(t, ecdsaKey(t, elliptic.P384())), "P-521": pairOf(t, ecdsaKey(t, elliptic.P521())),
		"Ed25519": pairOf(t, edwards), "RSA 2048": pairOf(t, medium), "RSA 4096": pairOf(t, rsaKey(t, 4096)),
		"PKCS #1": {Certificate: certify(t, medium.Public()), Key: keyText("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(medium))},
	}
	for name, c := range accepted {
		require.NoError(t, c.Check(time.Now()), name)
	}
	// A number of the right size; whether it can be factored is not checked.
	huge := func(bits uint) *rsa.PublicKey {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
	}
	key := accepted["P-256"].Key
	for name, c := range map[string]webhook.ClientCertificate{
		"RSA 1024":  pairOf(t, rsaKey(t, 1024)),
		"RSA 2047":  {Certificate: certify(t, huge(2047)), Key: key},
		"RSA 4097":  {Certificate: certify(t, huge(4097)), Key: key},
		"RSA 19630": {Certificate: certify(t, huge(19630)), Key: key},
		"P-224":     pairOf(t, ecdsaKey(t, elliptic.P224())),
	} {
		require.ErrorIs(t, c.Check(time.Now()), webhook.ErrKeyKind, name)
		_, err := c.Pair()
		require.ErrorIs(t, err, webhook.ErrKeyKind, "%s, also when it is stored already", name)
		leaf, err := c.Leaf()
		require.NoError(t, err, "the API can still show it")
		require.Equal(t, "shop", leaf.Subject.CommonName, name)
	}
}

// A key that is much longer than necessary is not parsed.
func TestLongClientKeys(t *testing.T) {
	t.Parallel()
	key := ecdsaKey(t, elliptic.P256())
	c := pairOf(t, key)
	plain, _ := pem.Decode([]byte(c.Key))
	var parts []asn1.RawValue
	_, err := asn1.Unmarshal(plain.Bytes, &parts)
	require.NoError(t, err)
	padded := func(n int) webhook.ClientCertificate { // with attributes, which are not read
		attributes := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: make([]byte, n)}
		der, err := asn1.Marshal(append(slices.Clip(parts), attributes))
		require.NoError(t, err)
		return webhook.ClientCertificate{Certificate: c.Certificate, Key: keyText("PRIVATE KEY", der)}
	}
	require.NoError(t, padded(100).Check(time.Now()))
	require.ErrorIs(t, padded(4000).Check(time.Now()), webhook.ErrKey)
	// The first key in the text is used.
	two := padded(4000)
	two.Key += c.Key
	require.ErrorIs(t, two.Check(time.Now()), webhook.ErrKey)
}

func TestChainOfClientCertificates(t *testing.T) {
	t.Parallel()
	c := pairOf(t, ecdsaKey(t, elliptic.P256()))
	behind := certify(t, ecdsaKey(t, elliptic.P256()).Public())
	for n, want := range map[int]error{0: nil, 1: nil, 4: nil, 5: webhook.ErrChain, 12: webhook.ErrChain} {
		long := c
		long.Certificate += strings.Repeat(behind, n)
		require.ErrorIs(t, long.Check(time.Now()), want, "%d", n)
		pair, err := long.Pair()
		require.ErrorIs(t, err, want)
		if want == nil {
			require.Len(t, pair.Certificate, n+1)
		}
	}
	require.Contains(t, webhook.ErrChain.Error(), "more than 5")
	require.Equal(t, 5, webhook.MaxCertificates)
}
