// Package mailpage serves the pages that the links of notification mails lead to: one confirms an address, the other unsubscribes it. Opening a page
// changes nothing, because scanners of mails open links; its button does, and so does the one-click unsubscription of mail programs (RFC 8058).
package mailpage

import (
	"context"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	prefix     = "/notifications/"
	tokenBytes = 48 // as the store makes them
	pageTime   = 10 * time.Second
	maxBody    = 4 << 10
	// All visitors together open so many pages: a token cannot be guessed, but a look-up costs a query.
	perSecond, burst = 50, 200
)

// Subscriptions are the mail channels, by their tokens. CodeNotFound: there is none.
type Subscriptions interface {
	Knows(ctx context.Context, token []byte) (bool, error)
	Confirm(ctx context.Context, token []byte) error
	Unsubscribe(ctx context.Context, token []byte) error
}

// Pages serves the pages.
type Pages struct {
	subscriptions Subscriptions
	name          string // of the installation
	log           *slog.Logger
	limit         *rate.Limiter
	page          *template.Template
}

// New makes Pages.
func New(s Subscriptions, name string, log *slog.Logger) *Pages {
	return &Pages{
		subscriptions: s, name: name, log: log, limit: rate.NewLimiter(perSecond, burst), page: template.Must(template.New("page").Parse(pageHTML)),
	}
}

// Owns reports whether a request is for one of the pages.
func Owns(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, prefix) }

// view is what a page shows.
type view struct {
	Name, Title, Text, Button string // without a button there is no form
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	if !p.limit.Allow() {
		w.Header().Set("Retry-After", "1")
		p.show(w, http.StatusTooManyRequests, view{Title: "Too many requests", Text: "Please try again in a moment."})
		return
	}
	token, confirms, found := tokenOf(r.URL.Path)
	switch {
	case !found:
		p.unknown(w)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		p.ask(ctx, w, token, confirms)
	case r.Method == http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody) // nothing of it is needed
		p.act(ctx, w, token, confirms)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		p.show(w, http.StatusMethodNotAllowed, view{Title: "Method not allowed", Text: "This page is opened from a mail."})
	}
}

// tokenOf returns the token in a path, and which of the pages it is.
func tokenOf(path string) (token []byte, confirms, found bool) {
	text, confirms := strings.CutPrefix(path, notify.ConfirmPath)
	if !confirms {
		if text, found = strings.CutPrefix(path, notify.UnsubscribePath); !found {
			return nil, false, false
		}
	}
	token, err := base64.RawURLEncoding.DecodeString(text)
	return token, confirms, err == nil && len(token) == tokenBytes
}

// ask shows what the button does.
func (p *Pages) ask(ctx context.Context, w http.ResponseWriter, token []byte, confirms bool) {
	known, err := p.subscriptions.Knows(ctx, token)
	switch {
	case err != nil:
		p.failed(w, err)
	case !known:
		p.unknown(w)
	case confirms:
		p.show(w, http.StatusOK, view{
			Title: "Confirm notifications", Text: "Do you want notifications about webhook endpoints at your mail address?", Button: "Confirm",
		})
	default:
		p.show(w, http.StatusOK, view{
			Title: "Unsubscribe", Text: "Do you want no more notifications of this kind at your mail address?", Button: "Unsubscribe",
		})
	}
}

// act does what the button says.
func (p *Pages) act(ctx context.Context, w http.ResponseWriter, token []byte, confirms bool) {
	do, done := p.subscriptions.Unsubscribe, view{Title: "Unsubscribed", Text: "You get no more of these mails."}
	if confirms {
		do = p.subscriptions.Confirm
		done = view{Title: "Confirmed", Text: "Notifications are sent to your mail address from now on, unless you have unsubscribed before."}
	}
	switch err := do(ctx, token); {
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		p.unknown(w)
	case err != nil:
		p.failed(w, err)
	default:
		p.show(w, http.StatusOK, done)
	}
}

func (p *Pages) unknown(w http.ResponseWriter) {
	p.show(w, http.StatusNotFound, view{Title: "The link is not valid", Text: "It was cut off, or the notifications that it belongs to have been removed."})
}

func (p *Pages) failed(w http.ResponseWriter, err error) {
	p.log.Warn("a page of a notification mail cannot be served", "error", err)
	p.show(w, http.StatusServiceUnavailable, view{Title: "Please try again later", Text: "Nothing was changed."})
}

func (p *Pages) show(w http.ResponseWriter, status int, v view) {
	v.Name = p.name
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the path has the token
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	_ = p.page.Execute(w, v) // an error: the client has gone
}

const pageHTML = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} · {{.Name}}</title>
<style>
:root { color-scheme: light dark }
body { font-family: system-ui, sans-serif; line-height: 1.5; max-width: 32rem; margin: 15vh auto; padding: 0 1rem }
button { font: inherit; padding: 0.5rem 1.25rem }
</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{if .Button}}<form method="post"><button>{{.Button}}</button></form>{{end}}
</main>
<footer><small>{{.Name}}</small></footer>
</body>
</html>
`
