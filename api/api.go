// Package api is the HTTP API, version 1: Echo handlers over interfaces that the package
// declares, problem+json errors, and the OpenAPI document. The tests compare the document
// with the routes and with the responses of the handlers.
package api

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// Limits of a request. openapi.yaml documents them.
const (
	roomAroundPayload = 64 << 10 // bytes of a body besides its payload
	minBatchBytes     = 8 << 20  // the limit of a batch, if it is not twice the largest payload
	maxHeaderBytes    = 32 << 10
)

// Config is the configuration of the API. All interfaces but ConsoleLinks are required.
type Config struct {
	Tenants         Tenants
	Keys            Keys
	Endpoints       Endpoints
	EndpointSecrets EndpointSecrets
	Events          Events
	Erasures        PayloadErasures
	Exports         Exports
	RequestKeys     RequestKeys
	Deliveries      Deliveries
	EndpointSwitch  EndpointSwitch
	Releases        Releases
	Audit           Audit
	Limits          Limits
	TenantUpdates   TenantUpdates
	TenantDeletions TenantDeletions
	Statistics      Statistics

	Health   EndpointHealth
	Circuits Circuits
	Tests    EndpointTests
	Replays  Replays
	// ReplayCounts and DeadLetterGroups count the deliveries that a command to many would affect.
	ReplayCounts     ReplayCounts
	DeadLetterGroups DeadLetterGroups
	Starter          Starter
	URLs             URLs

	// Situations and Engine are for explanations.
	Situations Situations
	Engine     Engine
	// Retention is how long the installation keeps payloads, attempts and ended deliveries, which bounds the retention of
	// tenants. Defaults to 30 days.
	Retention time.Duration
	// DeadLettersKept is how long dead letters are kept; 0 if that is not known.
	DeadLettersKept time.Duration

	// ConsoleLinks stores links to the console; nil while the console is switched off. ConsoleURL is the
	// console's address for browsers, without a path. Defaults to the address that a request came to.
	ConsoleLinks ConsoleLinks
	ConsoleURL   string

	// MaxPayload is the largest payload of an event in bytes, at most webhook.LargestMaxPayload. Defaults to
	// webhook.DefaultMaxPayload.
	MaxPayload int

	// OperatorKey is accepted as an operator key in addition to the stored ones. Any text;
	// defaults to none.
	OperatorKey string

	// RetryPolicy is the installation's retry policy. It applies if neither the endpoint nor
	// its tenant has one. Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Logger gets internal errors, and each request at debug level, without payloads, keys
	// and URLs. Defaults to none.
	Logger *slog.Logger

	// WorkflowURL returns the address of a workflow in the Temporal Web UI. Without it
	// workflow_url is null. Tenants' keys get it only with WorkflowURLForTenants.
	WorkflowURL           func(workflowID string) string
	WorkflowURLForTenants bool
	// WorkflowsKept returns how long the Web UI shows a closed workflow; afterwards workflow_url
	// is null. 0: not known, and workflow_url is never null. Defaults to that.
	WorkflowsKept func() time.Duration

	// TrustedProxies are the proxies whose X-Forwarded-For is used as the source of a
	// request. Defaults to none: the source is the peer of the connection.
	TrustedProxies []netip.Prefix

	// Metrics counts requests. Defaults to none.
	Metrics Metrics

	// Tracer makes a span of each request. Defaults to none.
	Tracer *tracing.Tracer

	// Version is shown in the OpenAPI document. Defaults to "dev".
	Version string

	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.RetryPolicy.IsZero() {
		c.RetryPolicy = retry.Default()
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = webhook.DefaultMaxPayload
	}
	if c.Retention == 0 {
		c.Retention = 30 * 24 * time.Hour
	}
	if c.WorkflowURL == nil {
		c.WorkflowURL = func(string) string { return "" }
	}
	if c.WorkflowsKept == nil {
		c.WorkflowsKept = func() time.Duration { return 0 }
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Server is the API.
type Server struct {
	config  Config
	echo    *echo.Echo
	openAPI []byte
	page    func() ([]byte, error) // the documentation page
	buckets buckets
	bodies  *bodyBudget
	answers *fair.Semaphore // in steps of answerStep

	encoders *fair.Semaphore // of lists
	pace     bodyPace
	exports  exports
	keys     requestsUnderWay

	byPath   map[string]route // by method and path of Echo
	inFlight atomic.Int64     // requests

	conditions *cache.Cache[string, []condition] // by tenant
	presetHash func() [sha256.Size]byte
}

// New returns a Server with all routes. The caller closes it.
func New(c Config) *Server {
	s := &Server{
		config: c.withDefaults(), echo: echo.New(), buckets: buckets{of: map[string]*rate.Limiter{}}, pace: usualPace(),
		answers: newAnswerBudget(), encoders: newEncoders(), byPath: map[string]route{},
		keys: requestsUnderWay{keys: map[[32]byte]struct{}{}},
	}
	s.bodies = newBodyBudget(s.config.MaxPayload)
	s.conditions, s.presetHash = s.newConditions(), presetHash(s.config.OperatorKey)
	s.openAPI = openAPIDocument(s.config.Version)
	s.page = docsOf(s.openAPI)
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = s.routerError
	s.echo.Use(s.middleware)
	for _, r := range routes() {
		s.echo.Add(r.method, r.echoPath(), s.serve(r))
		s.byPath[r.method+" "+r.echoPath()] = r
	}
	return s
}

// maxBody and maxBatch are the largest bodies, in bytes: of a batch, and of everything else.
func (s *Server) maxBody() int  { return s.config.MaxPayload + roomAroundPayload }
func (s *Server) maxBatch() int { return max(minBatchBytes, 2*s.config.MaxPayload) }

// Close ends what runs in the background. Call it when the server takes no more requests.
func (s *Server) Close() { s.conditions.Close() }

// Handler returns the API as an http.Handler.
func (s *Server) Handler() http.Handler { return s.echo }

// AnswerBytes returns the memory held by answers that are being made or written, in bytes.
func (s *Server) AnswerBytes() int { return s.answers.InUse() * answerStep }

// BodyBytes returns the memory held by the bodies of current requests, in bytes.
func (s *Server) BodyBytes() int { return s.bodies.held() }

// HTTPServer returns the server for the API, with every timeout and limit set. A client has
// 30 s to send its body. A response takes up to 1 s of
// waiting for the intake's queue plus the handler's own work; an endpoint test sets a
// longer limit of its own, and a response is written for as long as the client keeps to the pace (answer.go).
func (s *Server) HTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(answerBuffer) // an error: the connection has ended
			}
			return ctx
		},
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
}
