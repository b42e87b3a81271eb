// Package egress is the HTTP client towards receivers, which are strangers: it
// refuses destinations that are not public and bounds what an answer can cost.
//
// It writes requests and reads answers with net/http's own Request.Write and
// ReadResponse, one at a time over a connection that it dialled itself. It does not
// use http.Transport, because four of its habits do not fit:
//
//   - it repeats a request on another connection when the kept one died after the
//     request was written, if the request has an Idempotency-Key or
//     X-Idempotency-Key header, which ours may have: the receiver would see it twice;
//   - it prints bytes that follow an answer to the standard logger, so a receiver
//     could write its own lines, or our payload, into our log;
//   - a 101 answer outlives its deadline (golang/go#44988);
//   - each kept connection costs two goroutines and two buffers, here it costs a
//     descriptor, and a hand-over between three goroutines per request.
//
// HTTP/1.1 only, no redirects, no cookies, no decompression; a proxy only if the
// operator names one (see tunnel).
package egress

import (
	"bufio"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Bounds on what a request may take and an answer may cost.
const (
	DefaultTimeout = 15 * time.Second // of a request, over everything
	MaxTimeout     = 30 * time.Second // the longest a request may ask for
	DefaultMaxIdle = 10               // kept connections per endpoint

	MaxHeaderBytes = 32 << 10 // of all headers of an answer, 1xx ones included
	MaxBodyBytes   = 64 << 10 // read of an answer's body before its connection is given up
	MaxStoredBytes = 16 << 10 // kept of an answer's body

	maxStoredHeaderBytes = 8 << 10         // kept of an answer's headers
	maxBodyWireBytes     = 1 << 20         // of a body as sent, with the overhead of chunks
	maxConnectionAge     = 5 * time.Minute // so that a changed DNS record is followed
)

// Config holds a client's policy and what tests inject.
type Config struct {
	// Guard decides where requests may go. Defaults to NewGuard(GuardConfig{}).
	Guard *Guard

	// Version is sent as "User-Agent: Everpost/<version>". Defaults to "dev".
	Version string

	// MaxIdle bounds the kept connections of all endpoints together. Defaults to 2048.
	MaxIdle int

	// IdleTimeout is how long a connection is kept without use, less if the receiver
	// says so in a Keep-Alive header. Defaults to 30 s.
	IdleTimeout time.Duration

	// RootCAs verify receivers. Defaults to the system's.
	RootCAs *x509.CertPool

	// Resolver looks names up. Defaults to net.DefaultResolver.
	Resolver *net.Resolver

	// Logger is told what tenants are not: which address a name leads to that no request
	// may go to. Defaults to none.
	Logger *slog.Logger

	// Proxy is the operator's way out, http://[user:password@]host:port: requests go
	// through tunnels that it makes (CONNECT), to addresses that the guard has checked.
	// Request.ExemptAddr is reached without it. Defaults to none; HTTPS_PROXY and the
	// like are not looked at.
	Proxy *url.URL
}

// WithDefaults returns a copy with the absent fields filled in.
func (c Config) WithDefaults() Config {
	if c.Guard == nil {
		c.Guard = NewGuard(GuardConfig{})
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.MaxIdle <= 0 {
		c.MaxIdle = 2048
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 30 * time.Second
	}
	return c
}

// Request is one POST to one endpoint.
type Request struct {
	// EndpointID is whose connection may be used: connections are kept per endpoint
	// and never shared. Empty means a connection of its own, closed afterwards.
	EndpointID string

	// Version of the endpoint: connections kept for another version are closed.
	Version int64

	// URL is checked by the guard before every request.
	URL string

	// Header fields in order; Content-Type defaults to application/json. Host,
	// Content-Length and the fields that steer a connection (RFC 9110, section 7.6.1)
	// are ignored.
	Header [][2]string

	// Body must not be changed, not even after Send has returned: a receiver that
	// answers early leaves the rest of it unread.
	Body []byte

	// Auth makes the Authorization header; one among Header is ignored then. What it
	// needs first, a token, counts towards Timeout.
	Auth webhook.Auth

	// Certificate is what a TLS session is opened with, if any.
	Certificate webhook.ClientCertificate

	// Timeout covers name resolution, connecting, TLS, headers and body together.
	// Defaults to DefaultTimeout; MaxTimeout at most.
	Timeout time.Duration

	// MaxIdle is how many connections to keep for the endpoint. Defaults to
	// DefaultMaxIdle; negative keeps none.
	MaxIdle int

	// ExemptAddr is let through although it is not public, over http too, for a URL
	// that names it literally. It exists for the demonstration's receiver inside the
	// process; nothing that a tenant sent may reach this field.
	ExemptAddr netip.AddrPort
}

// Response is what one request came to. A failure is a value: look at Answer.
type Response struct {
	Answer  retry.Answer
	Latency time.Duration // from Send to the end of the answer, or to the failure

	// Header of the answer, 8 KiB at most, without Set-Cookie and the like. Where it, or
	// Body, repeats what Request.Auth made, it says "[redacted]".
	Header map[string][]string

	// Body is the beginning of the answer's body, as sent (not decompressed), and
	// Truncated tells that there was more.
	Body      []byte
	Truncated bool

	// Err describes Answer.Fault as "<class>: <cause>", printable, 200 bytes at most,
	// without any part of the URL. Empty when there was no fault.
	Err string

	// OwnFault tells that the request ended because of us (the context was cancelled,
	// no descriptor or port was free): nothing is known about the receiver, and the
	// request may or may not have reached it.
	OwnFault bool
}

// Client sends requests. It is safe for concurrent use; one serves a whole process.
type Client struct {
	config    Config
	userAgent string
	pool      *pool
	tokens    *tokens
	certs     *certificates
	refusals  *refusals

	missingTime time.Duration // another in tests

	readers sync.Pool // of *bufio.Reader
	heads   sync.Pool // of *[MaxHeaderBytes]byte
	writers sync.Pool // of *bufio.Writer
}

// New returns a client. Close it when no request is under way.
func New(config Config) *Client {
	config = config.WithDefaults()
	return &Client{
		config:    config,
		userAgent: "Everpost/" + config.Version,
		pool:      newPool(config.MaxIdle, config.IdleTimeout),
		tokens:    newTokens(),
		certs:     newCertificates(),
		refusals:  newRefusals(),

		missingTime: missingTime,

		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }},
		heads:   sync.Pool{New: func() any { return new([MaxHeaderBytes]byte) }},
		writers: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }},
	}
}

// Close closes the kept connections. Requests under way end normally; their
// connections are not kept.
func (c *Client) Close() { c.pool.close() }

// Send makes one request and waits for the answer, at most Request.Timeout.
//
// The request is written at most once, with one exception: on a connection kept
// from an earlier request, which the receiver may close at any moment, it is
// written again on a new connection when it is certain that the receiver got
// nothing of it (see exchange). RFC 9112, section 9.3.1, forbids more than that
// for a POST. It is also sent again, with a new token, when the receiver answers 401
// to a token from an earlier request: it has refused it then, not lost it.
//
// Cancelling the context aborts the request and leaves its outcome unknown.
func (c *Client) Send(ctx context.Context, r Request) Response {
	start := time.Now()
	response := c.send(ctx, start.Add(timeout(r.Timeout)), &r)
	end := time.Now()
	response.Latency = end.Sub(start)
	if response.Answer.ReceivedAt.IsZero() {
		response.Answer.ReceivedAt = end
	}
	return response
}

func (c *Client) send(ctx context.Context, deadline time.Time, r *Request) Response {
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		deadline = own
	}
	t, err := c.config.Guard.target(r.URL, r.ExemptAddr)
	if err != nil {
		return failure(ctx, phaseStart, err)
	}
	t.endpoint = r.EndpointID
	for again := false; ; again = true {
		authorization, err := c.authorization(ctx, deadline, r)
		if err != nil {
			return unauthorized(ctx, err)
		}
		response := c.once(ctx, deadline, t, r, authorization.header)
		withoutEcho(&response, authorization.header)
		if response.Answer.Status != http.StatusUnauthorized || authorization.token == nil {
			return response
		}
		c.tokens.drop(r.EndpointID, authorization.token)
		if again || !authorization.cached {
			return response
		}
	}
}

// once makes one request on a kept connection or a new one.
func (c *Client) once(ctx context.Context, deadline time.Time, t target, r *Request, authorization string) Response {
	req, err := c.newRequest(t, r, authorization)
	if err != nil {
		return failure(ctx, phaseStart, err)
	}
	if err := ctx.Err(); err != nil {
		return failure(ctx, phaseStart, err)
	}

	id := identity{endpoint: r.EndpointID, version: r.Version, scheme: t.url.Scheme, address: t.address, exempt: t.exempt}
	if kept := c.pool.take(id, time.Now(), deadline); kept != nil {
		response, untouched := c.exchange(ctx, deadline, kept, req, r)
		if !untouched {
			return response
		}
	}
	if t.certificate, err = c.certs.of(r); err != nil {
		return failure(ctx, phaseTLS, err)
	}
	fresh, at, err := c.dial(ctx, deadline, t)
	if err != nil {
		return failure(ctx, at, err)
	}
	fresh.id = id
	response, _ := c.exchange(ctx, deadline, fresh, req, r)
	return response
}

// withoutEcho removes from an answer the credentials that were sent: some receivers
// repeat what they were asked, and the answer is kept for more eyes than the endpoint is.
func withoutEcho(response *Response, authorization string) {
	if authorization == "" {
		return
	}
	echoes := webhook.EchoesOfHeader([2]string{"Authorization", authorization})
	echoes.RedactHeader(response.Header)
	response.Header = storable(response.Header) // it may be longer now
	response.Body = echoes.RedactText(response.Body, response.Truncated || response.Answer.Fault != retry.FaultNone)
	if len(response.Body) > MaxStoredBytes {
		response.Body, response.Truncated = response.Body[:MaxStoredBytes], true
	}
}

func timeout(asked time.Duration) time.Duration {
	if asked <= 0 {
		return DefaultTimeout
	}
	return min(asked, MaxTimeout)
}
