package egress

import (
	"crypto/tls"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

// maxCertificates bounds the number of endpoints whose parsed certificates are cached, up
// to 30 KiB each. An endpoint beyond the bound has its certificate parsed again.
const maxCertificates = 1000

// certificateError is a stored client certificate that cannot be used. An older version of
// Everpost with fewer checks may have stored it.
type certificateError struct{ why error }

func (e *certificateError) Error() string { return "the client certificate " + e.why.Error() }

// certificates caches the endpoints' parsed certificates: parsing an RSA key takes longer
// than the rest of a request.
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

// of returns the client certificate for the request's TLS session, nil if it has none.
func (c *certificates) of(r *Request) (*tls.Certificate, error) {
	if r.Certificate.IsZero() {
		return nil, nil //nolint:nilnil // most have none
	}
	c.mu.Lock()
	known, _ := c.kept.Get(r.EndpointID, time.Now())
	c.mu.Unlock()
	// Compare the texts, not the versions: they are usually the same strings in memory.
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
