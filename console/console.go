// Package console is the web console at /console: pages made by the server over the API of the same
// process. It has no access to the store: every page reads and changes through api.Server.As, so that
// authorisation, validation, limits and the audit log are those of the API.
//
// # Add a page
//
//  1. Write a handler, func(p *page) error, in a file named for the page. Read with p.get (a path below
//     /v1/tenants/{tenant}) or p.api.get (a whole path), change with p.send or p.api.send; return an error
//     as it is, and the reader gets a page for it. End a reading page with p.show(view{…}), a change with
//     p.done(path, "sentence").
//  2. Write templates/<name>.html, which defines the template <name>. Its dot has .Data (the view's Data) and
//     .Page (see pageInfo): links by {{.Page.To "deliveries" .ID}}, forms with {{template "csrf" .Page}}.
//     Of values from outside, write text with {{visible .Text}}; a time with {{template "time" .At}}, a state with
//     {{template "state" .State}}, form fields with {{template "input" (input .Form "url" "URL" "hint")}}.
//     Forms that failed come back with what was typed: see form.
//  3. Name the handler in a func() []route beside it, and that function in routes (route.go); a page in the
//     navigation names its entry there, too.
//
// A template <name>/live is the part of a page that is sent again when it changes: set view.Live, and write
// <div id="live">{{template "<name>/live" .}}</div> in the page. The handler then runs every 2 s for each
// reader, so it reads little.
//
// Without JavaScript every page works; the script only improves. There are no inline scripts and no style
// attributes: the Content-Security-Policy refuses them.
package console

import (
	"context"
	"crypto/sha256"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// Root is the path of the console.
const Root = "/console"

// Sessions stores the console's sessions and redeems its links.
type Sessions interface {
	Links

	// CreateSession stores the session of a log-in.
	CreateSession(ctx context.Context, by webhook.Actor, made webhook.ConsoleSession) error
	// Session reads a session that has not ended; else CodeNotFound. Unless used is set, it does not count as a use,
	// which keeps a session.
	Session(ctx context.Context, sum [sha256.Size]byte, used bool) (webhook.ConsoleSession, error)
	EndSession(ctx context.Context, sum [sha256.Size]byte) error
}

// Links reads links and uses them up. CodeNotFound: the link cannot be used (any more).
type Links interface {
	Link(ctx context.Context, link [sha256.Size]byte) (webhook.ConsoleLink, error)
	// UseLink removes a link and opens its session.
	UseLink(ctx context.Context, by webhook.Actor, link [sha256.Size]byte, made webhook.ConsoleSession) (webhook.ConsoleSession, error)
}

// API is the API of this process. *api.Server implements it.
type API interface {
	Authenticator
	As(caller api.Caller) http.Handler
	SourceAddress(r *http.Request) netip.Addr
	Secure(r *http.Request) bool
}

// Authenticator checks keys.
type Authenticator interface {
	Authenticate(ctx context.Context, text string) (webhook.Key, error)
	Confirm(ctx context.Context, id webhook.KeyID, sum [sha256.Size]byte, used bool) (webhook.Key, error)
	KeyHash(key webhook.Key) [sha256.Size]byte
}

// Config is what a console needs.
type Config struct {
	API      API
	Sessions Sessions

	// Doctor makes the checks of "everpost doctor", which change nothing. Defaults to none: there is no such page then.
	Doctor func(context.Context) []Finding

	// URL is the console's address for browsers, without a path; "" for the one that a request came to.
	URL string
	// Name and Color are the title and the accent (#rrggbb). They default to Everpost's.
	Name, Color string
	// FrameAncestors are the origins that may show a portal in a frame. Defaults to none.
	FrameAncestors []string
	// UISession: Temporal's Web UI asks for operators' sessions, at the same host name: see IsOperator.
	UISession bool
	// Version is shown in the footer.
	Version string
	// Logger receives the errors whose details readers do not see. Defaults to none.
	Logger *slog.Logger
	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "Everpost"
	}
	if c.Color == "" {
		c.Color = defaultColor
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Console is the web console.
type Console struct {
	config    Config
	mux       *http.ServeMux
	entries   []entry // of the navigation
	templates *template.Template
	assets    map[string]asset
	forms     *http.CrossOriginProtection
	guesses   *logInLimiter[netip.Prefix]
	logIns    *logInLimiter[webhook.KeyID]
	streams   *streams
	lookUps   *fair.Semaphore // by source: sessions that are being looked up
	unknown   *unknownTokens
	pages     places // that are being made
	looks     places // live pages that are being made again
	slow      places // pages that wait for others, and big forms
	transfers places // forms that are being read, and large answers that are being sent
	diagnosis diagnosis
}

// New makes a console. An error means that the URL or a template is wrong.
func New(c Config) (*Console, error) {
	s := &Console{
		config: c.withDefaults(), mux: http.NewServeMux(), forms: http.NewCrossOriginProtection(),
		guesses: newLogInLimiter[netip.Prefix](guessBurst), logIns: newLogInLimiter[webhook.KeyID](logInBurst), streams: newStreams(),
		lookUps: fair.NewDynamic(maxLookUps, 1), unknown: newUnknownTokens(),
		pages: newPlaces(maxPages), looks: newPlaces(maxLooks), slow: newPlaces(maxSlow), transfers: newPlaces(maxTransfers),
	}
	if c.URL != "" { // behind a proxy, requests may have another host
		if err := s.forms.AddTrustedOrigin(c.URL); err != nil {
			return nil, fmt.Errorf("read the console's URL: %w", err)
		}
	}
	s.assets = loadAssets(s.config.Color)
	var err error
	if s.templates, err = parseTemplates(s); err != nil {
		return nil, fmt.Errorf("read the console's templates: %w", err)
	}
	known := routes()
	for _, r := range known {
		method, path, _ := strings.Cut(r.pattern, " ")
		s.mux.Handle(method+" "+Root+path, s.serve(r))
	}
	s.entries = navigation(known)
	s.mux.HandleFunc("GET "+Root+"/assets/{name}", s.asset)
	s.mux.Handle("GET "+Root+"/{$}", s.serve(route{pattern: "GET /{$}", handle: home}))
	s.mux.Handle("/", s.serve(route{access: public, handle: func(*page) error { return errNotFound() }}))
	return s, nil
}

// Owns reports whether a path is the console's.
func Owns(path string) bool {
	rest, found := strings.CutPrefix(path, Root)
	return found && (rest == "" || rest[0] == '/')
}

// ServeHTTP implements http.Handler.
func (s *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.headers(w, r)
	if r.URL.Path == Root {
		http.Redirect(w, r, Root+"/", http.StatusTemporaryRedirect)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Close ends all streams.
func (s *Console) Close() { s.streams.close() }

// Limits on the work for readers, so that it does not slow down deliveries.
const (
	maxPages     = 16               // pages that are being made at a time, in a process
	maxLooks     = 1                // live pages at a time that are made again: together they would delay deliveries
	maxSlow      = 8                // pages at a time that wait for others, or whose form is big
	maxTransfers = 64               // forms at a time that are being read, and large answers that are being sent
	maxLookUps   = 4                // sessions that are looked up at a time: invented tokens must not take the API's connections
	busyWait     = 3 * time.Second  // for one of these places
	pageTime     = 15 * time.Second // to make a page
	testTime     = 50 * time.Second // of a page that waits for a receiver's answer
	maxForm      = 64 << 10         // bytes of a form
	maxBigForm   = 1 << 20          // bytes of a form with a payload, whose percent-encoding triples it
	maxPublic    = 8 << 10          // bytes of a form before a log-in
	smallAnswer  = 16 << 10         // bytes of an answer that needs no place to be sent
	maxResponse  = 8 << 20          // bytes that are read of one response of the API
)

// headers sets the headers of every response. The policies are the strictest under which the pages work.
func (s *Console) headers(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	ancestors := "'none'"
	if len(s.config.FrameAncestors) > 0 && s.framed(r) {
		ancestors = strings.Join(s.config.FrameAncestors, " ")
	} else {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors "+ancestors)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with "no-referrer", forms would have no origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}
