package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"
)

// maxSilentWire bounds the bytes that a receiver may send below TLS without a byte of
// application data: its side of the handshake, and what crypto/tls buffers until a message
// is complete, for example a session ticket. An ordinary handshake is 2 to 8 KiB, one that
// lists many certificate authorities up to 20 KiB; a record is 16 KiB.
const maxSilentWire = 32 << 10

var errTooMuchTLS = errors.New("more than 32 KiB of TLS without an answer")

// Bounds on the parsed certificates, which are kept as long as the connection. An ordinary
// chain has 2 to 4 certificates and a few names, a large network's some hundred. Only the
// first certificate is verified: the others may contain anything.
const (
	maxPeerCertificates = 16
	maxPeerNames        = 1000
	maxPeerURIs         = 50 // each takes 130 bytes and may be sent in 2
	maxPeerTimestamps   = 64
)

var errTooManyCertificates = errors.New("too many certificates, or names in them")

// limitCertificates refuses a session whose certificates would take too much memory.
func limitCertificates(s tls.ConnectionState) error {
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
	silent  int          // bytes read since the last application data
	heard   bool         // anything was read
	framing framing
	polling bool // Read does not block: see tlsConn.noPendingData
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
	w.heard = w.heard || n > 0
	w.framing.pass(p[:n])
	return n, err
}

func (w *wire) readNow(p []byte) (int, error) {
	if outer, ok := w.Conn.(*tlsConn); ok { // with an https proxy
		return outer.readNow(p)
	}
	return readNow(w.tcp, p)
}

// tlsConn is a TLS session over a wire.
type tlsConn struct {
	net.Conn // secure; tests put themselves between

	secure *tls.Conn
	wire   *wire
}

func (s *tlsConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.wire.silent = 0
	}
	return n, err //nolint:wrapcheck // io.Reader: io.EOF must stay itself
}

// noPendingData reports whether all data that has arrived was read. It asks crypto/tls,
// which reads ahead: data that follows a response may be in its buffers already, where the
// socket does not show it. Messages that are not data, such as session tickets and key
// updates, are processed and do not count. An incomplete record may be either: it counts as
// data if completeRecord is set.
//
// The wire returns errNothing when there is no more to read. crypto/tls makes any read
// error permanent, except a net.Error that is Temporary, which it passes on so that a read
// can be interrupted by a deadline and continued.
func (s *tlsConn) noPendingData(completeRecord bool) bool {
	var one [1]byte
	_, err := s.readNow(one[:])
	// A request to renegotiate cannot be met here: its handshake ends with errNothing.
	idle := errors.Is(err, errNothing) && s.secure.ConnectionState().HandshakeComplete
	return idle && (!completeRecord || s.complete())
}

// readNow reads without waiting; errNothing when nothing has arrived.
func (s *tlsConn) readNow(p []byte) (int, error) {
	s.wire.polling = true
	defer func() { s.wire.polling = false }()
	return s.Read(p)
}

// complete reports whether the last record is complete, and the last one below it.
func (s *tlsConn) complete() bool {
	outer, ok := s.wire.Conn.(*tlsConn)
	return s.wire.framing.complete() && (!ok || outer.complete())
}

// errNothing is readNow's error when nothing has arrived.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing has arrived" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true } // see tlsConn.noPendingData

// readWithin is readNow for sockets that have no non-blocking read: it waits this long. The
// caller must set the connection's read deadline again afterwards.
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
	left   int // bytes of the record still to come; within a header, its last two bytes
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

// complete reports whether the last record is complete.
func (f *framing) complete() bool { return f.header == 0 && f.left == 0 }
