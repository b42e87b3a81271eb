package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/webhook"
)

// session is what a TLS session has been asked for.
type session struct {
	asked   bool // the receiver has asked for a client certificate
	offered bool // the endpoint has one
}

// sessionError is an error of TLS with what is known of its session.
type sessionError struct {
	error

	session

	silent bool // the receiver had sent nothing
}

func (e *sessionError) Unwrap() error { return e.error }

// closed reports whether the receiver has closed the connection instead of an answer to the hello.
func (e *sessionError) closed() bool {
	return e.silent && (errors.Is(e.error, io.EOF) || errors.Is(e.error, io.ErrUnexpectedEOF) ||
		errors.Is(e.error, syscall.ECONNRESET) || errors.Is(e.error, syscall.EPIPE))
}

// withSession adds what is known of the connection's TLS session to an error.
func (c *conn) withSession(err error) error {
	if c.session == nil {
		return err
	}
	return &sessionError{error: err, session: *c.session}
}

// unasked reports whether the endpoint's client certificate was not presented because the handshake did not ask for it, and can not
// be any more: TLS 1.3 knows no renegotiation, and crypto/tls no post-handshake authentication.
func (c *conn) unasked() bool {
	if c.session == nil || !c.session.offered || c.session.asked {
		return false
	}
	s, ok := c.Conn.(*tlsConn)
	return ok && s.secure.ConnectionState().Version == tls.VersionTLS13
}

// secure makes the TLS handshake on a new connection. A small hello leaves out ML-KEM. The error is a *sessionError.
func (c *Client) secure(ctx context.Context, cn *conn, t target, small bool) error {
	of := &session{offered: t.certificate != nil}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		MaxVersion: t.maxTLS,
		RootCAs:    c.config.RootCAs,
		ServerName: serverName(t.host),
		NextProtos: []string{"http/1.1"},

		VerifyConnection: limitCertificates,
	}
	if small {
		config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	}
	// Send the certificate whatever authorities the receiver lists. A receiver that
	// does not trust it then says so with a clear error; a missing certificate is often
	// reported only later.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		of.asked = true
		if t.certificate == nil {
			return &tls.Certificate{}, nil
		}
		return t.certificate, nil
	}
	if of.offered {
		// Apache, IIS and others ask for it once they know the path.
		config.Renegotiation = tls.RenegotiateOnceAsClient
	}
	below := &wire{Conn: cn.Conn, tcp: cn.tcp}
	secure := tls.Client(below, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return &sessionError{error: fmt.Errorf("TLS handshake: %w", err), session: *of, silent: !below.heard}
	}
	below.silent = 0
	cn.Conn, cn.session = &tlsConn{Conn: secure, secure: secure, wire: below}, of
	return nil
}

// dialTLS connects to the target and makes the handshake. A connection that the receiver closes during the hello is tried once
// more with a small one: ML-KEM makes the hello longer than one packet, which some middleboxes and old servers do not expect.
func (c *Client) dialTLS(ctx context.Context, t target, times *webhook.Times) (*conn, phase, error) {
	to := helloTarget{cmp.Or(t.endpoint, t.tenant), t.address}
	for small := c.hellos.small(to, time.Now()); ; small = true {
		made, err := c.connect(ctx, t, times)
		if err != nil {
			return nil, phaseDial, err
		}
		cn := &conn{Conn: made.Conn, tcp: made.tcp, created: time.Now()}
		start := time.Now()
		err = c.secure(ctx, cn, t, small)
		addSince(&times.TLS, start)
		again := c.hellos.learn(to, small, err, time.Now())
		if err == nil {
			return cn, phaseTLS, nil
		}
		cn.discard()
		if !again || ctx.Err() != nil {
			return nil, phaseTLS, err
		}
	}
}

// helloTarget is one endpoint's receiver, or a tenant's token server.
type helloTarget struct{ owner, address string }

// hellos remembers which receivers need a small hello.
type hellos struct {
	mu    sync.Mutex
	until *cache.Map[helloTarget, time.Time]
}

const (
	// maxHellos bounds the receivers that are remembered, and helloMemory for how long: the larger hello protects against
	// computers of the future, so it is tried again.
	maxHellos   = 10_000
	helloMemory = 24 * time.Hour
)

func newHellos() *hellos { return &hellos{until: cache.NewMap[helloTarget, time.Time](maxHellos)} }

// small reports whether the receiver gets a small hello.
func (h *hellos) small(to helloTarget, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until.Get(to, now)
	return ok && now.Before(until)
}

// learn notes how a handshake ended. again reports that it is to be made at once with a small hello. A hello that was lost has
// taken the time of the attempt, so the next one has the small hello.
func (h *hellos) learn(to helloTarget, small bool, err error, now time.Time) (again bool) {
	failure, ok := errors.AsType[*sessionError](err)
	lost := ok && failure.silent && isTimeout(err)
	again = ok && !small && failure.closed()
	h.mu.Lock()
	defer h.mu.Unlock()
	until, known := h.until.Peek(to)
	switch {
	case small && err != nil:
		h.until.Delete(to) // it does not help
	case small && (!known || !now.Before(until)), !small && lost:
		h.until.Put(to, now.Add(helloMemory), now)
	}
	return again
}
