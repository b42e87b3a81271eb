// Package egress is the HTTP client that sends requests to receivers. Receivers are
// untrusted: the client refuses destinations that are not public and bounds what a response
// can cost.
//
// It writes requests and reads responses itself, one at a time over a connection that it dialled
// itself. It does not use net/http's client, for these reasons:
//
//   - A receiver that has answered has answered. http.ReadResponse refuses answers that browsers
//     and curl understand, for a line that it cannot parse or a length that is given twice. What
//     was accepted would be sent again.
//   - Names of header fields and bytes of URLs are sent as they were configured. http.Request
//     changes both.
//   - http.Transport does not say whether the receiver got anything of a request on a kept connection
//     that died. Here it is sent again if it certainly got nothing, and only then. (That
//     http.Transport repeats a request with an Idempotency-Key could be prevented: it does so only
//     while Request.GetBody is set.)
//   - It prints bytes that follow a response to the standard logger, so a receiver could
//     write its own lines, or the payload, into the log.
//   - A 101 response outlives its deadline (golang/go#44988).
//   - Each kept connection costs two goroutines and two buffers, and each request a hand-over
//     between three goroutines. Here a kept connection costs a file descriptor.
//
// The client speaks HTTP/1.1 only. It follows no redirects, keeps no cookies and
// decompresses nothing. It uses a proxy only if the operator configures one (see tunnel).
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

// Bounds on what a request may take and a response may cost.
const (
	DefaultMaxIdle = 10 // idle connections per endpoint

	MaxHeaderBytes = 64 << 10 // of all response headers, 1xx responses included
	MaxBodyBytes   = 64 << 10 // of a response body that are read before the connection is closed
	MaxStoredBytes = 16 << 10 // of a response body that are stored

	maxStoredHeaderBytes = 8 << 10         // of a response's headers that are stored
	maxBodyWireBytes     = 1 << 20         // of a body as sent, including chunk framing
	maxConnectionAge     = 5 * time.Minute // so that a changed DNS record is followed
)

// Config holds a client's policy and what tests inject.
type Config struct {
	// Guard decides where requests may go. Defaults to NewGuard(GuardConfig{}).
	Guard *Guard

	// Version is sent as "User-Agent: Everpost/<version>". Defaults to "dev".
	Version string

	// MaxIdle bounds the idle connections of all endpoints together. Defaults to 2048.
	MaxIdle int

	// IdleTimeout is how long an idle connection is kept, less if the receiver asks for
	// less in a Keep-Alive header. Defaults to 30 s.
	IdleTimeout time.Duration

	// RootCAs verify receivers. Defaults to the system's.
	RootCAs *x509.CertPool

	// Resolver looks names up, always as absolute ones. Defaults to the system's hosts file
	// and name servers.
	Resolver *net.Resolver

	// Logger receives what tenants must not see: the denied address that a name resolves
	// to. Defaults to none.
	Logger *slog.Logger

	// Proxy is the operator's egress proxy, http[s]://[user:password@]host:port. Requests go
	// through CONNECT tunnels to addresses that the guard has checked. The address of Exempt
	// is dialled directly. Defaults to none; HTTPS_PROXY and similar variables are ignored.
	Proxy *url.URL

	// ProxyNames makes the proxy look up names: the guard then checks no address of a name, so
	// GuardConfig.Names should be set. Defaults to false.
	ProxyNames bool

	// NoProxy lists hosts to which requests go directly. Defaults to none.
	NoProxy HostList

	// Exempt allows the demonstration's receiver inside the process. Defaults to none.
	Exempt Exemption
}

// Exemption allows one URL of one tenant to lead to one address that is not public, over http
// too. The URL contains the address literally. Neither may come from a tenant.
type Exemption struct {
	TenantID string
	URL      string
	Addr     netip.AddrPort
}

// addrOf returns the address that a request may be sent to although it is not public; zero for
// none.
func (e *Exemption) addrOf(r *Request) netip.AddrPort {
	if e.URL == "" || r.TenantID != e.TenantID || r.URL != e.URL {
		return netip.AddrPort{}
	}
	return e.Addr
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
	// EndpointID names the endpoint whose connections may be used: connections are kept per
	// endpoint and never shared. Empty means a connection of its own, closed afterwards.
	EndpointID string

	// Version of the endpoint: connections kept for another version are closed.
	Version int64

	// URL is checked by the guard before every request.
	URL string

	// Header fields in order; Content-Type defaults to application/json. Host,
	// Content-Length and the connection-specific fields (RFC 9110, section 7.6.1) are
	// ignored.
	Header [][2]string

	// Body must not be changed, not even after Send has returned: when a receiver responds
	// early, the rest of the body may still be read.
	Body []byte

	// Auth produces the Authorization header and overrides one in Header. Fetching a token
	// for it counts towards Timeout.
	Auth webhook.Auth

	// Certificate is the client certificate of the TLS session, if any.
	Certificate webhook.ClientCertificate

	// Timeout covers name resolution, connecting, TLS, headers and body together.
	// Defaults to webhook.DefaultTimeout; webhook.MaxTimeout at most.
	Timeout time.Duration

	// MaxIdle bounds the endpoint's idle connections. Defaults to DefaultMaxIdle; negative
	// keeps none.
	MaxIdle int

	// TenantID is compared with Exemption.TenantID, and bounds the look-ups that are kept.
	TenantID string

	stored int // bytes of the response body that are returned; 0: MaxStoredBytes
}

// Response is the result of one request. A failure is a value: see Answer.
type Response struct {
	Answer  retry.Answer
	Latency time.Duration // from Send to the end of the answer, or to the failure
	Times   webhook.Times // of all requests that Send has made to the receiver

	// Header of the response, 8 KiB at most, without Set-Cookie and other secrets of the
	// receiver. Where Header or Body repeats the credentials of Request.Auth, it contains
	// "[redacted]".
	Header map[string][]string

	// Body is the beginning of the response body as sent (not decompressed). Truncated
	// reports that there was more.
	Body      []byte
	Truncated bool

	// Err describes Answer.Failure as "<class>: <cause>", printable, 300 bytes at most,
	// without any part of the URL. Empty when there is none.
	Err string

	// ReusedEnded reports that the connection had been kept from an earlier request and ended, by FIN
	// or RST, without a byte of an answer and soon after the request: the receiver has probably
	// closed it because it was idle, and does not have the request. It may have it all the same.
	ReusedEnded bool

	// CertificateUnasked reports that the answer is 401 or 403, and that Request.Certificate was not presented because the
	// handshake of TLS 1.3 did not ask for it.
	CertificateUnasked bool

	// InternalFault reports that the request failed on this side (the context was cancelled, or
	// no descriptor or port was free). It says nothing about the receiver, and the request
	// may or may not have reached it.
	InternalFault bool
}

// Client sends requests. It is safe for concurrent use; one serves a whole process.
type Client struct {
	config    Config
	userAgent string
	pool      *pool
	tokens    *tokens
	denials   *denialLog
	names     *names
	failed    *failedAddrs
	hellos    *hellos

	minNotFoundTime time.Duration // tests override it

	readers sync.Pool // of *bufio.Reader
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
		denials:   newDenialLog(),
		names:     newNames(config.Resolver),
		failed:    newFailedAddrs(),
		hellos:    newHellos(),

		minNotFoundTime: minNotFoundTime,

		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }},
		writers: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }},
	}
}

// Close closes the kept connections. Requests under way end normally; their
// connections are not kept.
func (c *Client) Close() { c.pool.close() }

// Send makes one request and waits for the response, at most Request.Timeout.
//
// The request is written at most once, with two exceptions. First, the receiver may close a
// connection kept from an earlier request at any moment; the request is then written again
// on a new connection, if it is certain that the receiver got nothing of it (see exchange).
// RFC 9112, section 9.3.1, forbids more than that for a POST. Second, when the receiver
// responds with 401 to a token from an earlier request, the request is sent again with a
// new token: the receiver has rejected it, not lost it.
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
	t, err := c.config.Guard.target(r.URL, c.config.Exempt.addrOf(r))
	if err != nil {
		return failed(ctx, phaseStart, err)
	}
	t.endpoint, t.tenant = r.EndpointID, r.TenantID
	var times webhook.Times
	for again := false; ; again = true {
		authorization, err := c.authorization(ctx, deadline, r)
		if err != nil {
			response := unauthorized(ctx, err)
			response.Times = times
			return response
		}
		response := c.once(ctx, deadline, t, r, authorization.header, &times)
		response.Times = times
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

// once makes one request on a kept connection or a new one, and adds to times.
func (c *Client) once(ctx context.Context, deadline time.Time, t target, r *Request, authorization string, times *webhook.Times) Response {
	head, err := c.requestHead(t, r, authorization)
	if err != nil {
		return failed(ctx, phaseStart, err)
	}
	if err := ctx.Err(); err != nil {
		return failed(ctx, phaseStart, err)
	}

	id := identity{endpoint: r.EndpointID, version: r.Version, scheme: t.url.Scheme, address: t.address, exempt: t.exempt}
	if kept := c.pool.take(id, time.Now(), deadline); kept != nil {
		response, untouched := c.exchange(ctx, deadline, kept, head, r, times)
		if !untouched {
			return response
		}
	}
	if !r.Certificate.IsZero() {
		// An older version of Everpost with fewer checks may have stored the certificate.
		certificate, err := r.Certificate.Pair()
		if err != nil {
			return failed(ctx, phaseTLS, &knownError{class: retry.FailureTLS, cause: "the client certificate " + err.Error()})
		}
		t.certificate, t.maxTLS = &certificate, r.Certificate.MaxTLS.Version()
	}
	fresh, at, err := c.dial(ctx, deadline, t, times)
	if err != nil {
		return failed(ctx, at, err)
	}
	fresh.id = id
	response, _ := c.exchange(ctx, deadline, fresh, head, r, times)
	return response
}

// withoutEcho redacts the credentials that were sent from a response: some receivers echo
// the request, and more people may read the stored response than the endpoint's
// configuration.
func withoutEcho(response *Response, authorization string) {
	if authorization == "" {
		return
	}
	echoes := webhook.EchoesOfHeader([2]string{"Authorization", authorization})
	echoes.RedactHeader(response.Header)
	response.Header = storableHeader(response.Header) // it may be longer now
	response.Body = echoes.RedactText(response.Body, response.Truncated || response.Answer.Failure != retry.FailureNone)
	if len(response.Body) > MaxStoredBytes {
		response.Body, response.Truncated = response.Body[:MaxStoredBytes], true
	}
}

func timeout(requested time.Duration) time.Duration {
	if requested <= 0 {
		return webhook.DefaultTimeout
	}
	return min(requested, webhook.MaxTimeout)
}
