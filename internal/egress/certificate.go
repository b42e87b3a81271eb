package egress

import (
	"crypto/tls"

	"github.com/everpost/everpost/internal/webhook"
)

// certificateError is a client certificate that cannot be used: a version of Everpost
// that knew less has stored it.
type certificateError struct{ why error }

func (e *certificateError) Error() string { return "the client certificate " + e.why.Error() }

// certificateOf is the certificate for a TLS session, nil for none.
func certificateOf(c webhook.ClientCertificate) (*tls.Certificate, error) {
	if c.IsZero() {
		return nil, nil //nolint:nilnil // most have none
	}
	pair, err := c.Pair()
	if err != nil {
		return nil, &certificateError{err}
	}
	return &pair, nil
}
