// Package api is the HTTP API, version 1: Echo handlers over the interfaces that it
// declares itself, problem+json errors, and the OpenAPI document that describes
// both. Its tests hold the document against the routes and against what the
// handlers really answer.
package api

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Limits of a request (openapi.yaml says them to callers).
const (
	maxBodyBytes   = 320 << 10
	maxBatchBytes  = 8 << 20
	maxHeaderBytes = 32 << 10
)

// Config is what the API needs. All interfaces are required.
type Config struct {
	Tenants         Tenants
	Keys            Keys
	Endpoints       Endpoints
	EndpointSecrets EndpointSecrets
	Events          Events
	Deliveries      Deliveries
	EndpointSwitch  EndpointSwitch
	Audit           Audit
	Limits          Limits
	TenantUpdates   TenantUpdates

	Health     EndpointHealth
	Circuits   Circuits
	Tests      EndpointTests
	Replays    Replays
	Dispatcher Dispatcher
	URLs       URLs

	// OperatorKey is accepted as an operator key beside those of the record. Any text;
	// defaults to none.
	OperatorKey string

	// RetryPolicy is the installation's: that of endpoints that have none of their own, nor
	// their tenant. Defaults to retry.Default.
	RetryPolicy retry.Policy

	// Logger gets errors of our own, and each request at debug level: never a
	// payload, a key or a URL. Defaults to nowhere.
	Logger *slog.Logger

	// UsualRate is how many deliveries an endpoint got in a minute before it was paused;
	// 0 when that is not known. Defaults to not known.
	UsualRate func(webhook.EndpointID) int

	// WorkflowURL is the address of a workflow in the Temporal Web UI. Without it
	// workflow_url is null. Only operators' keys see it, unless WorkflowURLForTenants.
	WorkflowURL           func(workflowID string) string
	WorkflowURLForTenants bool
	// WorkflowsKept is how long a workflow that has ended can be looked at: after it
	// workflow_url is null. 0: for ever.
	WorkflowsKept time.Duration

	// TrustedProxies are where proxies are whose X-Forwarded-For says where a request came
	// from. Defaults to none: then it is the peer of the connection.
	TrustedProxies []netip.Prefix

	// Metrics counts what is refused. Defaults to nothing.
	Metrics Metrics

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
	if c.WorkflowURL == nil {
		c.WorkflowURL = func(string) string { return "" }
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

// Server answers the API's requests.
type Server struct {
	Config

	echo    *echo.Echo
	openAPI []byte
	page    func() ([]byte, error) // the document for people
	buckets buckets
	bodies  bodyBudget
	pace    bodyPace
}

// New makes a Server with all routes.
func New(c Config) *Server {
	s := &Server{Config: c.withDefaults(), echo: echo.New(), buckets: buckets{of: map[string]*rate.Limiter{}}, pace: usualPace()}
	s.openAPI = openAPIDocument(s.Version)
	s.page = docsOf(s.openAPI)
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = s.routerError
	s.echo.Use(s.around)
	for _, r := range routes() {
		s.echo.Add(r.method, r.echoPath(), s.serve(r))
	}
	return s
}

// Handler is the API as an http.Handler.
func (s *Server) Handler() http.Handler { return s.echo }

// BodyBytes is how many bytes the bodies of requests under way hold.
func (s *Server) BodyBytes() int { return s.bodies.held() }

// HTTPServer makes the server that the API is to be served by, with every time-out
// and bound set. A client may take 30 s to send its body, 320 KiB or a batch of 8 MiB;
// no answer takes longer than its own work and the 1 s that the dispatcher may let it
// wait, but for that of an endpoint's test, which sets a limit of its own.
func (s *Server) HTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
}
