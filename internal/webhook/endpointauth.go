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

// Limits of an endpoint's credentials.
const (
	MaxCredentialBytes  = 4 << 10  // a user name, a password, a token, a client's secret
	MaxTokenScopes      = 20       // per endpoint
	MaxCertificateBytes = 16 << 10 // of the client certificate with its chain, and of its key, each
	MaxCertificates     = 5        // the client certificate and its intermediates

	// Each TLS handshake needs one private-key operation, which no deadline interrupts:
	// some milliseconds with 4,096 bits, more than a second with 16,384.
	minRSABits, maxRSABits = 2048, 4096
	// maxKeyBytes limits a private key in DER. A key of maxRSABits in PKCS #8 takes 2,400
	// bytes. Parsing a longer key can cost as much CPU as its use.
	maxKeyBytes = 2560
)

// AuthKind is how a request authenticates to an endpoint.
type AuthKind string

// The kinds, by their names in the API.
const (
	AuthNone              AuthKind = ""
	AuthBasic             AuthKind = "basic"                     // RFC 7617
	AuthBearer            AuthKind = "bearer"                    // RFC 6750
	AuthClientCredentials AuthKind = "oauth2_client_credentials" //nolint:gosec // a name: RFC 6749, section 4.4
)

// Auth holds the credentials for a request's Authorization header. They are secret except
// for what the API returns, and are encrypted in the store.
type Auth struct {
	Kind AuthKind

	Username, Password string // AuthBasic
	Token              string // AuthBearer

	// AuthClientCredentials: the token server and the credentials for it.
	TokenURL, ClientID, ClientSecret string
	Scopes                           []string
	Audience                         string // an additional parameter of some token servers
}

// String redacts the credentials, so that a log or an error never contains them.
func (a Auth) String() string { return "[redacted]" }

// GoString is String.
func (a Auth) GoString() string { return "[redacted]" }

// Clone returns a deep copy.
func (a Auth) Clone() Auth {
	a.Scopes = slices.Clone(a.Scopes)
	return a
}

// ClientCertificate authenticates Everpost to an endpoint in TLS: the certificate with its
// intermediates, and the private key, both in PEM.
type ClientCertificate struct {
	Certificate string
	Key         string // secret
	MaxTLS      MaxTLS
}

// MaxTLS is the highest version of TLS that an endpoint with a client certificate uses, by its name in the API. In 1.2 a receiver
// can ask for the certificate once it knows the path of the request, in 1.3 only before.
type MaxTLS string

// The values of MaxTLS.
const (
	MaxTLSAny MaxTLS = ""
	MaxTLS12  MaxTLS = "1.2"
)

// Version returns the number of the version in TLS, 0 for the highest that there is.
func (m MaxTLS) Version() uint16 {
	if m == MaxTLS12 {
		return tls.VersionTLS12
	}
	return 0
}

// Errors of a client certificate, worded for the API.
var (
	ErrCertificate = errors.New("is not a certificate in PEM")
	ErrChain       = errors.New("has more than 5 certificates")
	ErrKeyKind     = errors.New("must be for an ECDSA key (P-256, P-384 or P-521), an Ed25519 key or an RSA key of 2048 to 4096 bits")
	ErrKey         = errors.New("is not the unencrypted private key of the certificate, in PEM")
	ErrExpired     = errors.New("has expired")
	ErrNotYet      = errors.New("is not valid yet")
)

// IsZero reports whether no certificate is set.
func (c ClientCertificate) IsZero() bool { return c == ClientCertificate{} }

// String redacts the key, so that a log or an error never contains it.
func (c ClientCertificate) String() string { return "[redacted]" }

// GoString is String.
func (c ClientCertificate) GoString() string { return "[redacted]" }

// Leaf parses the certificate itself; it does not parse the key or the intermediates. The
// error is ErrCertificate.
func (c ClientCertificate) Leaf() (*x509.Certificate, error) {
	return leafOf(blocksIn(c.Certificate, 1, isCertificate))
}

// Pair parses the certificate and its key for use in TLS, with Leaf set. The error is
// ErrCertificate, ErrChain, ErrKeyKind or ErrKey: the parser's own errors could quote key
// material. Key type and size are checked before the key is parsed.
func (c ClientCertificate) Pair() (tls.Certificate, error) {
	chain := blocksIn(c.Certificate, MaxCertificates+1, isCertificate)
	leaf, err := leafOf(chain)
	switch {
	case err != nil:
		return tls.Certificate{}, err
	case len(chain) > MaxCertificates:
		return tls.Certificate{}, ErrChain
	case !allowedKey(leaf.PublicKey):
		return tls.Certificate{}, ErrKeyKind
	}
	key := blocksIn(c.Key, 1, isPrivateKey)
	if len(key) == 0 || len(key[0]) > maxKeyBytes {
		return tls.Certificate{}, ErrKey
	}
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key)) // selects the same PEM blocks
	if err != nil {
		return tls.Certificate{}, ErrKey
	}
	return pair, nil
}

// Check is Pair, and returns ErrExpired or ErrNotYet if the certificate is not valid at
// the given time.
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

// allowedKey reports whether the type and size of a key are allowed for a TLS handshake.
func allowedKey(public any) bool {
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

// blocksIn returns the first PEM blocks of a kind, at most the given number.
func blocksIn(text string, most int, wanted func(kind string) bool) [][]byte {
	var found [][]byte
	for block, rest := pem.Decode([]byte(text)); block != nil && len(found) < most; block, rest = pem.Decode(rest) {
		if wanted(block.Type) {
			found = append(found, block.Bytes)
		}
	}
	return found
}

// isCertificate and isPrivateKey select blocks as tls.X509KeyPair does.
func isCertificate(kind string) bool { return kind == "CERTIFICATE" }
func isPrivateKey(kind string) bool {
	return kind == "PRIVATE KEY" || strings.HasSuffix(kind, " PRIVATE KEY")
}
