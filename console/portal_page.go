package console

import (
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalPage is one request for a page of the portal: what is said there is in the reader's words.
type portalPage struct {
	*page

	words *texts // in the reader's language; nil until something is said
}

// ofPortal is the handler of a route of the portal.
func ofPortal(handle func(*portalPage) error) func(*page) error {
	return func(p *page) error { return handle(p.portal) }
}

// portalView is a page of the portal to be shown. It is as view, with a title in the reader's language.
type portalView struct {
	Template string // of templates/portal/
	Title    string
	Status   int    // defaults to 200
	Entry    string // the current entry of the navigation: the last part of its path
	Live     bool
	Bare     bool // without navigation
	Data     any

	// Attempted is when the last of the attempts that the page shows was made. A sentence of a change before that is not shown: it spoke of what was to come.
	Attempted time.Time
}

// portalInfo is what every template of the portal may use. The texts are its methods: {{.Say "endpoints.title"}}.
type portalInfo struct {
	*texts

	Page         portalLayout
	Data         any
	now          time.Time
	CanChange    bool
	CanReveal    bool
	CanReplay    bool
	CanRotate    bool
	CanFilter    bool
	CanSetFilter bool
	HasFailed    bool // there may be a dead letter: the entry is shown
	FailedHere   bool // it is the current page

	hasTypes func() (bool, error)
}

// portalLayout is what the layout shows.
type portalLayout struct {
	Name, Title, Path, CSRF, Flash   string
	ReturnURL, RefreshURL            string
	Theme, Entry, Ended              string
	Embed, Live, Bare                bool
	Style, Script                    string
	Logo, DarkLogo, Icon             string
	Parents                          string // origins whose pages may show this one in a frame
	Languages                        []languageLink
	SignedIn, Unreviewed, HasOwnFont bool
}

// Say is a text of the catalogue.
func (i portalInfo) Say(key string, pairs ...any) (string, error) { return i.Text(key, pairs...) }

// HasTypes reports whether pages link to the catalogue of event types. Only a template that has the link asks.
func (i portalInfo) HasTypes() (bool, error) {
	if i.hasTypes == nil {
		return false, nil
	}
	return i.hasTypes()
}

// To is the path of a page.
func (i portalInfo) To(parts ...string) string { return portalPath(parts...) }

// When says how far a time is from now; At is the time in full. Both are for {{template "when"}}.
func (i portalInfo) When(at any) string { return i.Relative(timeOf(at), i.now) }

// At is a time in full.
func (i portalInfo) At(at any) string { return i.Instant(timeOf(at)) }

// Count is a whole number.
func (i portalInfo) Count(n any) string { return i.show(n) }

// Number is the number of an element of a list.
func (i portalInfo) Number(index int) string { return strconv.Itoa(index + 1) }

// Milliseconds is a short duration.
func (i portalInfo) Milliseconds(ms int64) string {
	const second = 1000
	if ms < second {
		return i.say("time.milliseconds", "count", ms)
	}
	return i.say("time.seconds", "seconds", i.printer.Sprintf("%.1f", float64(ms)/second))
}

// With is this page's path with one parameter of its query changed; "" removes it.
func (i portalInfo) With(name, value string) string {
	return pageInfo{Path: i.Page.Path}.With(name, value)
}

// For is the same with other data, for a part of a page.
func (i portalInfo) For(data any) portalInfo {
	i.Data = data
	return i
}

func portalPath(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return PortalRoot + "/" + strings.Join(escaped, "/")
}

// look is how the portal's pages look for this reader: as its session says, or its link, or the session before.
func (p *portalPage) look() webhook.PortalOptions {
	if p.session.signedIn() {
		return p.session.Portal
	}
	if query := p.r.URL.Query(); p.r.PathValue("token") != "" { // the link says it too: it is not looked up to be shown
		return webhook.PortalOptions{
			Lang: clip(query.Get("lang"), webhook.MaxLanguageTag), Theme: query.Get("theme"), Embed: query.Get("embed") == "true",
		}
	}
	return p.rememberedLook()
}

// texts are those in the reader's language.
func (p *portalPage) texts() *texts {
	if p.words == nil {
		p.words = p.console.portal.languages.choose(p.r, p.chosenLanguage(), p.look().Lang)
	}
	return p.words
}

// say is a text in the reader's language.
func (p *portalPage) say(key string, pairs ...any) string { return p.texts().say(key, pairs...) }

// show answers with a page of the portal. For a stream it only sends the page's live part.
func (p *portalPage) show(v portalView) error {
	info, err := p.info(v)
	if err != nil {
		return err
	}
	if p.live == nil {
		p.w.Header().Set("Content-Language", info.Lang)
		p.w.Header().Set("Vary", "Accept-Language")
	}
	return p.answer(answered{
		templates: p.console.portal.templates, name: v.Template, live: v.Live, status: v.Status, data: info,
		around: func(content template.HTML) any { return info.For(content) },
	})
}

func (p *portalPage) info(v portalView) (portalInfo, error) {
	s, c, look := p.session, p.console.config, p.look()
	t, files := p.texts(), p.console.portal.assets
	i := portalInfo{texts: t, Data: v.Data, now: c.Now()}
	said, at := p.flashed()
	if v.Attempted.After(at) {
		said = ""
	}
	i.Page = portalLayout{
		Name: c.Portal.Name, Title: v.Title, Path: p.r.URL.RequestURI(), Flash: said, Entry: v.Entry, Live: v.Live, Bare: v.Bare || !s.signedIn(),
		Embed: look.Embed, Theme: look.Theme, RefreshURL: look.RefreshURL, ReturnURL: s.ReturnURL, Parents: strings.Join(c.FrameAncestors, " "),
		Style: addressOf(files, "portal.css"), Script: addressOf(files, "portal.js"), Icon: addressOf(files, faviconFile),
		Logo: addressOf(files, logoFile), DarkLogo: addressOf(files, darkLogoFile), SignedIn: s.signedIn(), Unreviewed: !t.Reviewed,
		HasOwnFont: len(c.Portal.Font) > 0, Languages: p.languageLinks(),
	}
	if !s.signedIn() {
		return i, nil
	}
	i.Page.CSRF = csrfToken(s.token)
	i.CanChange, i.CanReveal = portalManages.sees(s), portalReveals.sees(s)
	i.CanRotate, i.CanReplay = portalRotates.sees(s), portalReplays.sees(s)
	i.CanFilter, i.CanSetFilter = portalFilters.sees(s), portalSetsFilters.sees(s)
	i.FailedHere = v.Entry == "failed"
	if p.live != nil || i.Page.Bare {
		return i, nil
	}
	var failed client.Page[client.Delivery]
	err := p.get(&failed, url.Values{"limit": {"1"}}, "dead-letters")
	if unlessBusy(err) != nil {
		return i, err
	}
	i.HasFailed = len(failed.Data) > 0 || i.FailedHere || err != nil // if it is not known, its page says it
	i.hasTypes = sync.OnceValues(p.hasEventTypes)
	return i, nil
}

// hasEventTypes reports whether the catalogue has a type. If all are archived, the page that is linked to then says that there is none.
func (p *portalPage) hasEventTypes() (bool, error) {
	var found client.Page[client.ListedEventType]
	err := p.api.get(p.r.Context(), &found, url.Values{"limit": {"1"}}, apiPath("event-types"))
	return len(found.Data) > 0, unlessBusy(err)
}

// rememberedLook is that of the last session of the browser, for the page that says that it has ended. It comes from a cookie, so
// that nothing of it is trusted.
func (p *portalPage) rememberedLook() webhook.PortalOptions {
	var look webhook.PortalOptions
	c, err := p.r.Cookie(lookCookie)
	if err != nil || len(c.Value) > maxLookCookie {
		return look
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || json.Unmarshal(text, &look) != nil {
		return webhook.PortalOptions{}
	}
	u, err := url.Parse(look.RefreshURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		look.RefreshURL = ""
	}
	if len(look.Lang) > webhook.MaxLanguageTag {
		look.Lang = ""
	}
	return webhook.PortalOptions{Lang: look.Lang, Theme: look.Theme, Embed: look.Embed, RefreshURL: look.RefreshURL}
}

// rememberLook keeps how a session's pages look, beyond its end.
func (p *portalPage) rememberLook(look webhook.PortalOptions) {
	look.Secrets, look.Filters, look.Replay = false, false, false
	text, err := json.Marshal(look)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(text)) > maxLookCookie {
		return // the page that says that the session has ended then has no link
	}
	p.console.setCookie(p.w, p.r, lookCookie, base64.RawURLEncoding.EncodeToString(text), lookLife)
}

const (
	lookCookie    = "everpost_look"
	lookLife      = 30 * 24 * time.Hour
	maxLookCookie = 3 << 10 // bytes: browsers keep 4 KiB
)

// showEnded says that the session has ended, and where there is another link.
func (p *portalPage) showEnded() error {
	if p.live != nil {
		return refusal(http.StatusUnauthorized, "the session has ended")
	}
	p.session = session{}
	if site := p.r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && p.r.Method == http.MethodGet &&
		p.r.URL.Query().Get("again") == "" && p.r.Header.Get("Sec-Fetch-Dest") == "document" { // the cookie is not sent then: asked from here, it is
		p.w.Header().Set("Refresh", "0; url="+pageInfo{Path: p.r.URL.RequestURI()}.With("again", "1"))
	}
	return p.show(portalView{Template: "ended", Title: p.say("ended.title"), Status: http.StatusUnauthorized})
}

// showError shows an error in the portal's words: an answer of the API is for operators.
func (p *portalPage) showError(of *problem) error {
	key := "error.other"
	switch of.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		key = "error.not_found"
	case http.StatusForbidden:
		key = "error.forbidden"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		key = "error.busy"
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		key = "error.invalid"
	}
	return p.show(portalView{Template: "error", Title: p.say(key + ".title"), Status: of.Status, Data: p.say(key)})
}
