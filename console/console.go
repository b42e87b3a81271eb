// Package console is the web console at /console, and the portal at /portal: pages made by the server over the API of the same
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
//  3. Name the handler in routes (routes.go), and a page of the navigation in navigation.go, too.
//
// A template <name>/live is the part of a page that is sent again when it changes: set view.Live, and write
// <div id="live">{{template "<name>/live" .}}</div> in the page. The handler then runs every 2 s for each
// reader, so it reads little.
//
// Without JavaScript every page works; the script only improves. There are no inline scripts and no style
// attributes: the Content-Security-Policy refuses them.
//
// # The portal
//
// Its pages are for the customers of the product that runs Everpost: handlers in portal_*.go, templates in templates/portal, a layout
// and a script of its own. A handler takes a *portalPage and ends with p.show(portalView{…}); a template's dot is a portalInfo. Every text is in
// texts/en.json and texts/de.json: {{.Say "key" "name" .Value}}, p.say("key", "name", value). What the API writes for people is never shown.
//
// # The files
//
// From the bottom up; each uses those before it only, but search uses search_id, too:
//
//	format, path, token                          texts, paths and tokens
//	client, form                                 requests to the API, forms
//	assets, session, access, limits, stream      what a Console has
//	diagnosis, console                           the findings of the doctor, the Console and its Config
//	cookie, lookup                               cookies, and the session of a request
//	page                                         one request: reading, changing and answering
//	navigation, layout, question, once, filter   how pages look, and what several of them do
//	home                                         what operators see first, and the menu's counts
//	endpoint_names, stats, release, action       parts of pages
//	search, search_id, policies                  the search and retry policies
//	event_matches                                whether endpoints match an event
//	event, delivery, overview                    events, deliveries and the overview
//	type_choices, event_types                    the catalogue of event types
//	event_type_form, event_type_import           its forms
//	filter_trial                                 filters that are tried with events
//	endpoint, endpoint_command                   endpoints
//	endpoint_form, endpoint_test_request         their form, and test requests
//	endpoint_filter                              the editor of their filters
//	selection, matching, dead_letters, replays    commands to many, dead letters and replays
//	portal_text, portal_look, portal             the portal's languages, files and pages: see below
//	portal_language                              the language that a reader chooses
//	portal_page, portal_link, portal_words       one page of it, how its sessions begin and end, and what it calls things
//	portal_endpoints, portal_filter, portal_form, portal_command, portal_verify, portal_types, portal_try, portal_messages
//	notifications, channel_form                  whom a tenant or the installation tells
//	keys, tenants, audit, doctor                 keys, and what operators see
//	login, link                                  how a session begins and ends
//	serve                                        how a page is made, once or again and again
//	routes, handler                              the table of all pages, the Console as an http.Handler
package console

import (
	"context"
	"crypto/sha256"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/look"
	"github.com/everpost/everpost/internal/webhook"
)

// Sessions stores the console's sessions and redeems its links.
type Sessions interface {
	Links
	api.SessionReader

	// CreateSession stores the session of a log-in.
	CreateSession(ctx context.Context, by webhook.Actor, made webhook.ConsoleSession) error
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
	// Portal is how the portal looks, and its further languages.
	Portal PortalLook
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
		c.Color = look.DefaultAccent
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
	templates *template.Template
	assets    assets
	portal    *portal
	forms     *http.CrossOriginProtection
	guesses   *logInLimiter[netip.Prefix]
	logIns    *logInLimiter[webhook.KeyID]
	streams   *streams
	lookUps   *api.SessionLookUps
	pages     places // that are being made
	looks     places // live pages that are being made again
	slow      places // pages that wait for others, and big forms
	transfers places // forms that are being read, and large answers that are being sent
	diagnosis diagnosis
}
