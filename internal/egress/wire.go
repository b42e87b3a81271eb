package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
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

	tcp     *net.TCPConn // the same, for readNow
	silent  int          // bytes read since the last that were of an answer
	framing framing
	polling bool // Read takes what has arrived and does not wait: see secured.quiet
}

func (w *wire) Read(p []byte) (int, error) {
	left := maxSilentWire - w.silent
	if left <= 0 {
		return 0, errTooMuchTLS
	}
	read := w.Conn.Read
	if w.polling {
		read = w.readNow
	}
	n, err := read(p[:min(len(p), left)])
	w.silent += n
	w.framing.pass(p[:n])
	return n, err
}

func (w *wire) readNow(p []byte) (int, error) { return readNow(w.tcp, p) }

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

// quiet reports whether no data has arrived that was not read. It asks crypto/tls, which
// reads ahead: what follows an answer may be in its buffers already, where nobody sees it
// at the socket. What is no data, a session ticket or new keys, is taken in on the way and
// does not count. A record that has not arrived completely may be either: whole refuses it.
//
// The wire answers with errNothing when there is no more. crypto/tls holds any error
// against the session for good but a net.Error that is Temporary, which it has always
// passed on as it is so that deadlines can be used to stop reading for a while.
func (s *secured) quiet(whole bool) bool {
	s.wire.polling = true
	defer func() { s.wire.polling = false }()
	var one [1]byte
	_, err := s.Read(one[:])
	return errors.Is(err, errNothing) && (!whole || s.wire.framing.whole())
}

// errNothing is why readNow reads nothing: nothing has arrived.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing has arrived" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true } // see secured.quiet

// readWithin is readNow for sockets that can only be read by waiting: it waits this long.
// The connection's deadline for reading has to be set anew afterwards.
func readWithin(c *net.TCPConn, p []byte, wait time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return 0, err //nolint:wrapcheck // seen by crypto/tls only
	}
	n, err := c.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNothing
	}
	return n, err
}

// framing finds the ends of TLS records (RFC 8446, section 5.1; the same in TLS 1.2).
type framing struct {
	header int // bytes of a header so far
	left   int // bytes of the record that are to come; of a header, its last two bytes
}

func (f *framing) pass(p []byte) {
	const headerSize = 5 // the last two bytes are the length of what follows
	for len(p) > 0 {
		if f.header == 0 && f.left > 0 {
			n := min(f.left, len(p))
			f.left, p = f.left-n, p[n:]
			continue
		}
		f.left = (f.left<<8 | int(p[0])) & 0xffff
		f.header, p = (f.header+1)%headerSize, p[1:]
	}
}

// whole reports whether a record has ended and none begun.
func (f *framing) whole() bool { return f.header == 0 && f.left == 0 }
