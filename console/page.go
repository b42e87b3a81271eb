package console

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// page is one request of a browser: who makes it, and what handlers need to answer it.
type page struct {
	console *Console
	w       http.ResponseWriter
	r       *http.Request
	session session
	api     localAPI   // as the session; unset on public pages
	tenant  string     // of the path; "" on pages that are about none
	typed   url.Values // the form that was sent
	ages    url.Values // the times that ages in the filter stand for: a cursor is good for these only
	live    *stream
	leave   func() // gives back the place in which the page is made
}

// serve returns the handler of a route: it finds the session, checks that it may open the page and that
// a form comes from a page of ours, and turns a handler's error into a page.
func (s *Console) serve(r route) http.Handler {
	limit := pageTime
	if r.slow {
		limit = testTime
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept") == eventStream {
			s.stream(w, req, r)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), limit)
		defer cancel()
		p := s.newPage(w, req.WithContext(ctx))
		if err := p.run(r); err != nil { //nolint:contextcheck // as below
			p.fail(err) //nolint:contextcheck // the page's request has the context
		}
	})
}

func (s *Console) newPage(w http.ResponseWriter, r *http.Request) *page {
	return &page{console: s, w: w, r: r, tenant: r.PathValue("tenant"), ages: url.Values{}, leave: func() {}}
}

// run runs a route's handler if the request may have it. Nothing of a form is read for a request that may not, and
// the form is read before there is a place for the page: a slow sender holds none.
func (p *page) run(r route) error {
	post := p.r.Method == http.MethodPost
	if post && p.console.forms.Check(p.r) != nil {
		return refusal(http.StatusForbidden, "the form was not sent from a page of this console")
	}
	if r.access != public {
		if err := p.signIn(); err != nil {
			return err
		}
		if !p.session.signedIn() {
			return p.askToLogIn()
		}
		foreign := p.tenant != "" && (p.session.TenantID != "" && p.session.TenantID != p.tenant || !webhook.ValidTenantID(p.tenant))
		if foreign || !r.access.sees(p.session) {
			return errNotFound() // as for a page that does not exist
		}
	}
	if r.slow || r.big {
		leave, err := p.enter(p.console.slow)
		if err != nil {
			return err
		}
		defer leave()
	}
	if post {
		if err := p.readForm(r); err != nil {
			return err
		}
	}
	if r.slow { // it only waits, for longer than the server's usual deadlines
		deadline := time.Now().Add(testTime)
		control := http.NewResponseController(p.w) // errors: there is no connection, as in tests
		_ = control.SetReadDeadline(deadline)
		_ = control.SetWriteDeadline(deadline.Add(busyWait))
	} else {
		leave, err := p.enterPages()
		if err != nil {
			return err
		}
		p.leave = leave
		defer leave()
	}
	return r.handle(p)
}

// enterPages waits for the place in which a page is made. After a look at a live page the next one waits for a while, so
// that deliveries have the processors.
func (p *page) enterPages() (leave func(), err error) {
	if p.live == nil {
		return p.enter(p.console.pages)
	}
	free, err := p.enter(p.console.looks)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	return func() { time.AfterFunc(min(liveRest*time.Since(began), liveEvery), free) }, nil
}

// enter waits for one of the places, in the share of the session.
func (p *page) enter(at places) (leave func(), err error) {
	share := ofVisitors
	if p.session.signedIn() {
		share = p.session.share()
	}
	leave, free := at.enter(p.r.Context(), share, busyWait)
	if !free {
		return nil, refusal(http.StatusServiceUnavailable, "too many pages are being made; try again in a moment")
	}
	return leave, nil
}

// startAnswer gives back the place in which the page was made, before an answer of that many bytes is sent. The
// caller calls done after that.
func (p *page) startAnswer(size int) (done func(), err error) {
	p.leave()
	if size <= smallAnswer {
		return func() {}, nil
	}
	return p.enter(p.console.transfers)
}

// readForm reads the body of a form within its bound, and checks that a form of ours was sent.
func (p *page) readForm(r route) error {
	limit := int64(maxPublic)
	if r.access != public {
		limit = maxForm
		done, err := p.enter(p.console.transfers)
		if err != nil {
			return err
		}
		defer done()
	}
	if r.big {
		limit = maxBigForm
	}
	p.r.Body = http.MaxBytesReader(p.w, p.r.Body, limit)
	if err := p.r.ParseForm(); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return refusal(http.StatusRequestEntityTooLarge, "the form is too large")
		}
		return refusal(http.StatusBadRequest, "the form cannot be read")
	}
	p.typed = p.r.PostForm //nolint:forbidigo // a field, not a request of our own
	if r.access != public && !tokenFits(p.typed, p.session.token) {
		const old = "the form is too old, or was not sent from a page of this console; load the page again and repeat it"
		return refusal(http.StatusForbidden, old)
	}
	return nil
}

// signIn finds the session.
func (p *page) signIn() error {
	found, err := p.console.findSession(p.r)
	if err != nil {
		return err
	}
	if p.session = found; found.signedIn() {
		p.api = localAPI{handler: p.console.config.API.As(found.caller()), from: p.r}
	}
	return nil
}

// askToLogIn redirects to the log-in page, and from there back. A browser that follows a link from another
// site does not send the cookie (SameSite=Strict): it gets a page that loads the log-in page once more, now
// from this site, with the cookie.
func (p *page) askToLogIn() error {
	if p.live != nil {
		return refusal(http.StatusUnauthorized, "the session has ended")
	}
	logIn := Root + "/login?" + url.Values{"to": {p.here()}}.Encode()
	if site := p.r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		p.w.Header().Set("Refresh", "0; url="+logIn)
		return p.show(view{Template: "again", Title: "One moment", Data: logIn})
	}
	p.redirect(logIn)
	return nil
}

// here is the page to come back to after a log-in.
func (p *page) here() string {
	if p.r.Method == http.MethodGet {
		return p.r.URL.RequestURI()
	}
	return p.console.pageAt(p.r.URL.Path)
}

// pageAt is the page at a path, or the nearest above it: a form's target need not be a page.
func (s *Console) pageAt(target string) string {
	for ; len(target) > len(Root); target = path.Dir(target) {
		_, pattern := s.mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: target}})
		if pattern != "" && pattern != "/" {
			return (&url.URL{Path: target}).EscapedPath()
		}
	}
	return Root + "/"
}

// get reads from the API, below /v1/tenants/{tenant} of the page's tenant.
func (p *page) get(into any, query url.Values, parts ...string) error {
	return p.api.get(p.r.Context(), into, query, p.path(parts...))
}

// send changes through the API, below /v1/tenants/{tenant} of the page's tenant.
func (p *page) send(into any, method string, body any, parts ...string) error {
	return p.api.send(p.r.Context(), into, method, p.path(parts...), body)
}

func (p *page) path(parts ...string) string {
	return apiPath(append([]string{"tenants", p.tenant}, parts...)...)
}

// canChange reports whether the session may change anything.
func (p *page) canChange() bool { return !p.session.caller().ReadOnly }

// to is the path of a page about the page's tenant.
func (p *page) to(parts ...string) string { return pagePath(p.tenant, parts...) }

// pagePath is the path of a page about a tenant.
func pagePath(tenant string, parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return Root + "/t/" + url.PathEscape(tenant) + "/" + strings.Join(escaped, "/")
}

func (p *page) redirect(to string) {
	http.Redirect(p.w, p.r, to, http.StatusSeeOther) //nolint:gosec // a path of ours: see localPath
}

// done ends a change: it shows the page at a path, with a sentence that says what was done.
func (p *page) done(to, sentence string) error {
	p.console.setCookie(p.w, p.r, flashCookie, base64.RawURLEncoding.EncodeToString([]byte(clip(sentence, maxFlash))), flashLife)
	p.redirect(to)
	return nil
}

// maxFlash is the length of a sentence that done shows, in bytes.
const maxFlash = 300

// flash returns the sentence of the change before this page, once.
func (p *page) flash() string {
	value := cookieOf(p.r, flashCookie)
	if value == "" || p.live != nil {
		return ""
	}
	p.console.setCookie(p.w, p.r, flashCookie, "", 0)
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return ""
	}
	return visible(string(text))
}

// fail shows an error as a page.
func (p *page) fail(err error) {
	shown := problemOf(err)
	switch {
	case shown.Status == http.StatusUnauthorized && p.live == nil: // the key was revoked a moment ago
		p.redirect(Root + "/login?" + url.Values{"to": {localPath(p.here())}}.Encode())
		return
	case shown.Status >= http.StatusInternalServerError:
		p.console.config.Logger.LogAttrs(p.r.Context(), slog.LevelWarn, "a page of the console could not be made",
			slog.String("route", p.r.Pattern), slog.Any("error", err))
	}
	if failed := p.show(view{Template: "error", Title: titleOf(shown.Status), Status: shown.Status, Data: shown}); failed != nil {
		http.Error(p.w, "the page could not be made", http.StatusInternalServerError)
	}
}

// problemOf is the problem that a reader sees for an error.
func problemOf(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	switch webhook.CodeOf(err) { //nolint:exhaustive // what the session's store and the keys return; all else is ours
	case webhook.CodeUnavailable:
		return refusal(http.StatusServiceUnavailable, "Everpost cannot reach its database at the moment; try again in a moment")
	case webhook.CodeUnauthenticated:
		return refusal(http.StatusUnauthorized, "the key is not valid any more")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return refusal(http.StatusServiceUnavailable, "the page took too long to make; try again in a moment")
	}
	return refusal(http.StatusInternalServerError, "the page could not be made; the server's log says why")
}

func titleOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusConflict:
		return "Not possible now"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return "Try again in a moment"
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return "The request is not valid"
	}
	return "Something went wrong"
}

// clip shortens a text to a number of bytes, at a character's border.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
