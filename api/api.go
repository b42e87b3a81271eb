// Package api is the HTTP API, version 1: Echo handlers over interfaces that the package
// declares, problem+json errors, and the OpenAPI document. The tests compare the document
// with the routes and with the responses of the handlers.
//
// A Server answers what all requests have in common, and gives each to the handler of its resource. A handler
// has the interfaces and settings that its operations use, and nothing of the Server but the call.
//
// The files, from the bottom up, where each uses those before it only; serve and middleware are methods of the Server:
//
//	store                                  the interfaces of the store, and others that several handlers use
//	format                                 how times, texts and sizes are shown
//	escape, field_path, json               a strict decoder of JSON, and the path of each error
//	decode, field                          values of JSON, and fields that several resources have
//	cursor                                 positions in lists
//	key, source_address                    the text of an API key, where a request came from
//	sessionlookup                          how sessions are found by their tokens
//	route, caller                          what is known of an operation, and who may use it
//	problem, metrics                       errors as answers, counts and spans of requests
//	bodybudget, body, answer               the memory and the pace of bodies and answers
//	auth, portaltoken                      API keys and portal tokens
//	ratelimit, requestkey                  the rates of tenants, requests with an Idempotency-Key
//	call, query, list                      a request as its handler gets it, its query, pages
//	ownchats                               what lists leave out
//	workflowurl, explain                   what answers say besides the resource
//	retrypolicy                            retry policies
//	erasure, event, batch                  events and their payloads
//	header, endpointauth, endpointfield    the fields of endpoints
//	secret, endpoint                       endpoints and their secrets
//	release, pause, circuit                what an endpoint is told
//	condition, health                      how an endpoint is
//	delivery, deadletter, command, replay  deliveries, and what they are told
//	endpointtest                           test requests
//	limits, retention, tenant, tenantkey   tenants and their API keys
//	etag, eventtypefield, eventtype,
//	eventtypeimport                        the catalogue of event types
//	audit, stats, consolelink              the audit log, statistics, links to the console
//	export                                 all that is stored of a tenant
//	openapi                                the OpenAPI document, and the pages that package reference makes from it
//	config                                 what a Server is made of
//	handlers, routes                       all handlers, and the table of operations
//	once, serve, middleware, cors, api     the Server, and how it answers a request
package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/webhook"
)

const maxHeaderBytes = 32 << 10 // openapi.yaml documents it

// Server is the API: what all requests have in common. What an operation does is its handler's.
type Server struct {
	*authenticator
	*observer
	trustedProxies

	log      *slog.Logger
	echo     *echo.Echo
	problems problems
	limiter  *limiter
	bodies   *bodies
	answers  *answers
	keys     *requestKeys
	handlers *handlers
}

// New returns a Server with all routes. The caller closes it.
func New(c Config) *Server {
	c = c.withDefaults()
	all, auth := routes(), newAuthenticator(&c)
	s := &Server{
		authenticator: auth, observer: newObserver(c.Metrics, c.Tracer, all), trustedProxies: c.TrustedProxies,
		log: c.Logger, echo: echo.New(), problems: problems{c.Logger}, limiter: newLimiter(c.Limits, c.Now),
		bodies: newBodies(c.MaxPayload, c.Metrics), answers: newAnswers(), keys: newRequestKeys(c.RequestKeys, c.Logger),
		handlers: newHandlers(&c, auth, all),
	}
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = s.problems.writeOfRouter
	s.echo.Use(s.middleware)
	if shared := newCrossOrigin(c.PortalOrigins, all); shared != nil {
		s.echo.Use(shared.middleware)
	}
	for _, r := range s.handlers.table() {
		s.echo.Add(r.method, r.echoPath(), s.serve(r))
	}
	return s
}

// Close ends what runs in the background. Call it when the server takes no more requests.
func (s *Server) Close() {
	s.handlers.attention.reader.close()
	s.handlers.conditions.reader.close()
}

// Handler returns the API as an http.Handler.
func (s *Server) Handler() http.Handler { return s.echo }

// CreateLogInLink stores a link that logs in with a key, and returns its path. The key's text is given.
func (s *Server) CreateLogInLink(ctx context.Context, by webhook.Actor, keyText string) (path string, err error) {
	return s.handlers.links.logInLink(ctx, by, keyText)
}

// AnswerBytes returns the memory held by answers that are being made or written, in bytes.
func (s *Server) AnswerBytes() int { return s.answers.budget.InUse() * answerStep }

// BodyBytes returns the memory held by the bodies of current requests, in bytes.
func (s *Server) BodyBytes() int { return s.bodies.budget.held() }

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
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}
