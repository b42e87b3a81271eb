package console

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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
	portal  *portalPage // if it is one
	leave   func()      // gives back the place in which the page is made
}

func (s *Console) newPage(w http.ResponseWriter, r *http.Request) *page {
	p := &page{console: s, w: w, r: r, tenant: r.PathValue("tenant"), ages: url.Values{}, leave: func() {}}
	if isBelow(r.URL.Path, PortalRoot) {
		p.portal = &portalPage{page: p}
	}
	return p
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

// signIn finds the session.
func (p *page) signIn() error {
	found, err := p.console.findSession(p.r)
	if err != nil {
		return err
	}
	if p.session = found; found.signedIn() {
		if p.portal != nil {
			p.tenant = found.TenantID
		}
		p.api = localAPI{handler: p.console.config.API.As(found.caller()), from: p.r}
	}
	return nil
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

// root is the path of the console, or of the portal.
func (p *page) root() string {
	if p.portal != nil {
		return PortalRoot
	}
	return Root
}

// to is the path of a page about the page's tenant.
func (p *page) to(parts ...string) string { return pagePath(p.tenant, parts...) }

func (p *page) redirect(to string) {
	http.Redirect(p.w, p.r, to, http.StatusSeeOther) //nolint:gosec // a path of ours: see localPath
}

// done ends a change: it shows the page at a path, with a sentence that says what was done.
func (p *page) done(to, sentence string) error {
	said := strconv.FormatInt(p.console.config.Now().UnixMilli(), 10) + " " + clip(sentence, maxFlash)
	p.console.setCookie(p.w, p.r, flashCookie, base64.RawURLEncoding.EncodeToString([]byte(said)), flashLife)
	p.redirect(to)
	return nil
}

// maxFlash is the length of a sentence that done shows, in bytes.
const maxFlash = 300

// flash returns the sentence of the change before this page, once.
func (p *page) flash() string {
	sentence, _ := p.flashed()
	return sentence
}

// flashed is flash, and when the change was made.
func (p *page) flashed() (sentence string, at time.Time) {
	value := cookieOf(p.r, flashCookie)
	if value == "" || p.live != nil {
		return "", at
	}
	p.console.setCookie(p.w, p.r, flashCookie, "", 0)
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return "", at
	}
	made, sentence, _ := strings.Cut(string(text), " ")
	ms, err := strconv.ParseInt(made, 10, 64)
	if err != nil {
		return "", at
	}
	return visible(sentence), time.UnixMilli(ms)
}
