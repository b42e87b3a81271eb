package egress

import (
	"crypto/tls"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

// maxCertificates bounds the endpoints whose certificates are kept ready for use, at up
// to 30 KiB each; one more costs reading it.
const maxCertificates = 1000

// certificateError is a client certificate that cannot be used: a version of Everpost
// that knew less has stored it.
type certificateError struct{ why error }

func (e *certificateError) Error() string { return "the client certificate " + e.why.Error() }

// certificates keeps what was read of the endpoints' certificates: to read an RSA key
// takes longer than all the rest of a request.
type certificates struct {
	mu   sync.Mutex
	kept *cache.Map[string, *readCertificate] // by endpoint
}

type readCertificate struct {
	of   webhook.ClientCertificate
	pair *tls.Certificate
	err  error
}

func newCertificates() *certificates {
	return &certificates{kept: cache.NewMap[string, *readCertificate](maxCertificates)}
}

// of is the certificate for a TLS session, nil for none.
func (c *certificates) of(r *Request) (*tls.Certificate, error) {
	if r.Certificate.IsZero() {
		return nil, nil //nolint:nilnil // most have none
	}
	c.mu.Lock()
	known, _ := c.kept.Get(r.EndpointID, time.Now())
	c.mu.Unlock()
	// The texts are compared, not the versions: as a rule they are the very same strings.
	if known != nil && known.of == r.Certificate {
		return known.pair, known.err
	}
	known = read(r.Certificate)
	if r.EndpointID != "" {
		c.mu.Lock()
		c.kept.Put(r.EndpointID, known, time.Now())
		c.mu.Unlock()
	}
	return known.pair, known.err
}

func read(c webhook.ClientCertificate) *readCertificate {
	pair, err := c.Pair()
	if err != nil {
		return &readCertificate{of: c, err: &certificateError{err}}
	}
	return &readCertificate{of: c, pair: &pair}
}
