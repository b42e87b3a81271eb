package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is a connection to one endpoint's receiver.
type conn struct {
	net.Conn              // plain or TLS: what requests are written to
	tcp      *net.TCPConn // the socket below
	id       identity
	born     time.Time
	used     bool      // it has carried a request before
	until    time.Time // when an idle one is too old to be used
}

// discard closes the socket without a TLS farewell: a receiver that reads nothing
// could make us wait for that one to be written.
func (c *conn) discard() { _ = c.tcp.Close() } // nothing can be done about a failed close

// quiet reports whether the connection is open and everything that has arrived on it was
// read. Bytes that nobody asked for make it unusable: they would be taken for the next
// answer. A TLS record of which a part has arrived, which may be a session ticket on its
// way, is waited for until the connection is needed: whole tells that it is.
//
// What it reads is lost. It must not be called while a request is under way.
func (c *conn) quiet(whole bool) bool {
	if session, ok := c.Conn.(*secured); ok {
		return session.quiet(whole)
	}
	var one [1]byte
	_, err := readNow(c.tcp, one[:])
	return errors.Is(err, errNothing)
}

// dial connects to the target by the deadline. On failure it tells in which phase.
func (c *Client) dial(ctx context.Context, deadline time.Time, t target) (*conn, phase, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	tcp, err := c.connect(ctx, t)
	if err != nil {
		return nil, phaseDial, err
	}
	cn := &conn{Conn: tcp, tcp: tcp, born: time.Now()}
	if t.url.Scheme != "https" {
		return cn, phaseDial, nil
	}

	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    c.config.RootCAs,
		ServerName: strings.TrimSuffix(t.host, "."),
		NextProtos: []string{"http/1.1"},

		VerifyConnection: modest,
	}
	if t.certificate != nil {
		// Whatever authorities the receiver names: one that it does not know it refuses in
		// clear words, a missing one often only later.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.certificate, nil }
	}
	below := &wire{Conn: tcp, tcp: tcp}
	secure := tls.Client(below, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		cn.discard()
		return nil, phaseTLS, fmt.Errorf("TLS handshake: %w", err)
	}
	below.silent = 0
	cn.Conn = &secured{Conn: secure, wire: below}
	return cn, phaseTLS, nil
}

// connect opens a connection to the target, or to the proxy and through it.
//
// A name that leads to where no request may go is to its tenant one that does not exist,
// in every respect: or else anybody could find out which names a private network has. A
// name server tells either in its own time, so both take the same.
func (c *Client) connect(ctx context.Context, t target) (*net.TCPConn, error) {
	start := time.Now()
	tcp, err := c.reach(ctx, t)
	if !t.named || err == nil {
		return tcp, err
	}
	refusal, refused := errors.AsType[*DeniedError](err)
	if refused {
		c.refusals.log(c.config.Logger, t, refusal)
	}
	missing, ok := errors.AsType[*net.DNSError](err)
	if !refused && (!ok || !missing.IsNotFound) {
		return nil, err
	}
	wait := time.NewTimer(time.Until(start.Add(c.missingTime)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

// missingTime is how long it takes at least until a name does not exist. It is longer than
// asking a name server nearby a few times, for each domain that the system searches.
const missingTime = 100 * time.Millisecond

// reach opens a connection to the target, or to the proxy and through it.
func (c *Client) reach(ctx context.Context, t target) (*net.TCPConn, error) {
	if c.config.Proxy != nil && !t.exempt.IsValid() {
		return c.tunnel(ctx, t)
	}
	var allowed atomic.Bool
	dialer := net.Dialer{
		Resolver:       c.config.Resolver,
		KeepAlive:      -1, // no connection lives idle long enough to need probes
		ControlContext: c.config.Guard.control(t.exempt, func() { allowed.Store(true) }),
	}
	plain, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, dialError(ctx, err, allowed.Load())
	}
	return ofTCP(plain)
}

// ofTCP is the connection as what a dial of TCP makes it.
func ofTCP(plain net.Conn) (*net.TCPConn, error) {
	tcp, ok := plain.(*net.TCPConn)
	if !ok {
		_ = plain.Close()
		return nil, fmt.Errorf("dial: %T is not a TCP connection", plain)
	}
	return tcp, nil
}

// dialError keeps a name with several addresses from counting as denied, which is
// final, when only some of them are denied and the others are merely down: the
// dialler reports whichever failed first.
func dialError(ctx context.Context, err error, allowed bool) error {
	var refusal *DeniedError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("dial: %w", err)
	}
	switch {
	case !allowed:
		return refusal
	case ctx.Err() != nil:
		return fmt.Errorf("dial: %w", ctx.Err())
	default:
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
}
