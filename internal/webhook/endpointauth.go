package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"time"
)

// Limits of what an endpoint is authenticated to with.
const (
	MaxCredentialBytes  = 4 << 10  // a user name, a password, a token, a client's secret
	MaxTokenScopes      = 20       // of one endpoint
	MaxCertificateBytes = 16 << 10 // a client certificate with its chain, and its key, each
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

// Pair is the certificate, with its Leaf, and its key, ready for use. The error is
// ErrCertificate or ErrKey: those of the parser might quote what they could not read.
func (c ClientCertificate) Pair() (tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err == nil {
		return pair, nil
	}
	if len(certificatesIn(c.Certificate)) == 0 {
		return tls.Certificate{}, ErrCertificate
	}
	return tls.Certificate{}, ErrKey
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

// certificatesIn are the certificates in a PEM text, as far as they can be read.
func certificatesIn(text string) []*x509.Certificate {
	var found []*x509.Certificate
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil
		}
		found = append(found, certificate)
	}
	return found
}
