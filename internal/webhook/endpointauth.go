package webhook

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"
)

// Limits of what an endpoint is authenticated to with.
const (
	MaxCredentialBytes  = 4 << 10  // a user name, a password, a token, a client's secret
	MaxTokenScopes      = 20       // of one endpoint
	MaxCertificateBytes = 16 << 10 // a client certificate with its chain, and its key, each
	MaxCertificates     = 5        // a client certificate and those between it and its authority

	// Every TLS session costs a private operation, which no deadline interrupts: some
	// milliseconds with 4,096 bits, more than a second with 16,384.
	minRSABits, maxRSABits = 2048, 4096
	// maxKeyBytes is of a private key in DER: 2,400 are one of maxRSABits in PKCS #8. To
	// read a longer one, only to find that it is not wanted, may cost as much as to use it.
	maxKeyBytes = 2560
)

// AuthKind is how a request says who sends it.
type AuthKind string

// The kinds. Their names are the API's.
const (
	AuthNone              AuthKind = ""
	AuthBasic             AuthKind = "basic"                     // RFC 7617
	AuthBearer            AuthKind = "bearer"                    // RFC 6750
	AuthClientCredentials AuthKind = "oauth2_client_credentials" //nolint:gosec // a name: RFC 6749, section 4.4
)

// Auth is what a request to an endpoint has in its Authorization header. It is secret,
// but for what the API shows of it: it is sealed at rest and lives in memory only.
type Auth struct {
	Kind AuthKind

	Username, Password string // AuthBasic
	Token              string // AuthBearer

	// AuthClientCredentials: where tokens are had, and with what.
	TokenURL, ClientID, ClientSecret string
	Scopes                           []string
	Audience                         string // a parameter that some token servers want
}

// String keeps an Auth that is printed by mistake from telling anything.
func (a Auth) String() string { return "[redacted]" }

// GoString is String.
func (a Auth) GoString() string { return "[redacted]" }

// Clone returns a copy that shares nothing.
func (a Auth) Clone() Auth {
	a.Scopes = slices.Clone(a.Scopes)
	return a
}

// ClientCertificate is what a TLS session with an endpoint is opened with: the
// certificate, with those between it and its authority, and its key, both as PEM.
type ClientCertificate struct {
	Certificate string
	Key         string // secret
}

// Errors of a client certificate, in words for whoever gave it.
var (
	ErrCertificate = errors.New("is not a certificate in PEM")
	ErrChain       = errors.New("has more than 5 certificates")
	ErrKeyKind     = errors.New("must be for an ECDSA key (P-256, P-384 or P-521), an Ed25519 key or an RSA key of 2048 to 4096 bits")
	ErrKey         = errors.New("is not the unencrypted private key of the certificate, in PEM")
	ErrExpired     = errors.New("has expired")
	ErrNotYet      = errors.New("is not valid yet")
)

// IsZero reports whether there is none.
func (c ClientCertificate) IsZero() bool { return c == ClientCertificate{} }

// String keeps the key from being printed by mistake.
func (c ClientCertificate) String() string { return "[redacted]" }

// GoString is String.
func (c ClientCertificate) GoString() string { return "[redacted]" }

// Leaf is the certificate itself, without a look at its key or at those behind it. The
// error is ErrCertificate.
func (c ClientCertificate) Leaf() (*x509.Certificate, error) {
	return leafOf(blocksIn(c.Certificate, 1, isCertificate))
}

// Pair is the certificate, with its Leaf, and its key, ready for use. The error is
// ErrCertificate, ErrChain, ErrKeyKind or ErrKey: those of the parser might quote what
// they could not read. The key is not read before what it would cost is known.
func (c ClientCertificate) Pair() (tls.Certificate, error) {
	chain := blocksIn(c.Certificate, MaxCertificates+1, isCertificate)
	leaf, err := leafOf(chain)
	switch {
	case err != nil:
		return tls.Certificate{}, err
	case len(chain) > MaxCertificates:
		return tls.Certificate{}, ErrChain
	case !affordable(leaf.PublicKey):
		return tls.Certificate{}, ErrKeyKind
	}
	key := blocksIn(c.Key, 1, isPrivateKey)
	if len(key) == 0 || len(key[0]) > maxKeyBytes {
		return tls.Certificate{}, ErrKey
	}
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key)) // of the same blocks
	if err != nil {
		return tls.Certificate{}, ErrKey
	}
	return pair, nil
}

// Check is Pair for someone who sets it: a certificate that is not valid at the time is
// refused, too, with ErrExpired or ErrNotYet.
func (c ClientCertificate) Check(now time.Time) error {
	pair, err := c.Pair()
	switch {
	case err != nil:
		return err
	case now.After(pair.Leaf.NotAfter):
		return ErrExpired
	case now.Before(pair.Leaf.NotBefore):
		return ErrNotYet
	}
	return nil
}

// affordable reports whether a session may be opened with the key of a public key.
func affordable(public any) bool {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return true
	case *rsa.PublicKey:
		return minRSABits <= key.N.BitLen() && key.N.BitLen() <= maxRSABits
	}
	return false
}

func leafOf(chain [][]byte) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, ErrCertificate
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, ErrCertificate
	}
	return leaf, nil
}

// blocksIn are the first blocks of a kind in a PEM text, at most so many.
func blocksIn(text string, most int, wanted func(kind string) bool) [][]byte {
	var found [][]byte
	for block, rest := pem.Decode([]byte(text)); block != nil && len(found) < most; block, rest = pem.Decode(rest) {
		if wanted(block.Type) {
			found = append(found, block.Bytes)
		}
	}
	return found
}

// isCertificate and isPrivateKey choose as tls.X509KeyPair does.
func isCertificate(kind string) bool { return kind == "CERTIFICATE" }
func isPrivateKey(kind string) bool {
	return kind == "PRIVATE KEY" || strings.HasSuffix(kind, " PRIVATE KEY")
}
