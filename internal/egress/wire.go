package egress

import (
	"crypto/tls"
	"errors"
	"net"
)

// maxSilentWire bounds what a receiver may send below TLS without a byte of an answer:
// its side of the handshake, and what crypto/tls gathers afterwards until a message is
// complete, of a session ticket say. An ordinary handshake is 2 to 8 KiB, one that
// names many authorities for a client's certificate up to 20; a record is 16.
const maxSilentWire = 32 << 10

var errTooMuchTLS = errors.New("more than 32 KiB of TLS without an answer")

// What of a receiver's certificates is kept for as long as the connection is, parsed. An
// ordinary chain has 2 to 4 of them and a few names, a large network's some hundred.
// Only the first has to be true: the others may hold whatever the receiver likes.
const (
	maxPeerCertificates = 16
	maxPeerNames        = 1000
	maxPeerURIs         = 50 // each takes 130 bytes and may be sent in 2
	maxPeerTimestamps   = 64
)

var errTooManyCertificates = errors.New("too many certificates, or names in them")

// modest refuses a session that would be dear to keep.
func modest(s tls.ConnectionState) error {
	names, uris := 0, 0
	for _, certificate := range s.PeerCertificates {
		names += len(certificate.DNSNames) + len(certificate.EmailAddresses) + len(certificate.IPAddresses)
		uris += len(certificate.URIs)
	}
	if len(s.PeerCertificates) > maxPeerCertificates || names > maxPeerNames || uris > maxPeerURIs ||
		len(s.SignedCertificateTimestamps) > maxPeerTimestamps {
		return errTooManyCertificates
	}
	return nil
}

// wire is the socket below a TLS session.
type wire struct {
	net.Conn

	silent int // bytes read since the last that were of an answer
}

func (w *wire) Read(p []byte) (int, error) {
	left := maxSilentWire - w.silent
	if left <= 0 {
		return 0, errTooMuchTLS
	}
	n, err := w.Conn.Read(p[:min(len(p), left)])
	w.silent += n
	return n, err //nolint:wrapcheck // io.Reader: io.EOF must stay itself
}

// secured is a TLS session over a wire.
type secured struct {
	net.Conn

	wire *wire
}

func (s *secured) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.wire.silent = 0
	}
	return n, err //nolint:wrapcheck // io.Reader: io.EOF must stay itself
}
