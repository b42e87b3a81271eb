package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language/display"

	"github.com/everpost/everpost/internal/webhook"
)

// languageCookie keeps the language that a reader has chosen, beyond the session, and which one the link had then: see chosenLanguage.
const (
	languageCookie = "everpost_language"
	languageLife   = 365 * 24 * time.Hour
)

// languageLink leads to the same page in another language.
type languageLink struct {
	Tag, Name, Path string
	Current         bool
}

// languageLinks are those of a page. What answers a form has none: it has no address to come back to.
func (p *portalPage) languageLinks() []languageLink {
	if p.r.Method != http.MethodGet || p.live != nil {
		return nil
	}
	var links []languageLink
	for _, t := range p.console.portal.languages.all {
		query := url.Values{"lang": {t.Lang}, "link": {p.look().Lang}, "to": {p.r.URL.RequestURI()}}
		links = append(links, languageLink{Tag: t.Lang, Name: t.name(), Path: PortalRoot + languagePath + "?" + query.Encode(), Current: t == p.texts()})
	}
	return links
}

// name is what the language calls itself; its tag if that is not known.
func (t *texts) name() string {
	name := display.Self.Name(t.tag)
	first, size := utf8.DecodeRuneInString(name)
	if size == 0 {
		return t.Lang
	}
	return string(unicode.ToUpper(first)) + name[size:]
}

const languagePath = "/language"

// chooseLanguage keeps a language and goes back to the page from which it was chosen.
func chooseLanguage(p *portalPage) error {
	query := p.r.URL.Query()
	to := query.Get("to")
	if path, ok := isLocal(to, PortalRoot); !ok || strings.HasPrefix(path, PortalRoot+languagePath) {
		to = PortalRoot + "/"
	}
	for _, t := range p.console.portal.languages.all {
		if t.Lang == query.Get("lang") {
			p.console.setCookie(p.w, p.r, languageCookie, t.Lang+"."+linkLanguage(query.Get("link")), languageLife)
			p.redirect(to)
			return nil
		}
	}
	return errNotFound()
}

// linkLanguage is the language of a link, fit for a cookie.
func linkLanguage(tag string) string { return url.QueryEscape(clip(tag, webhook.MaxLanguageTag)) }

// chosenLanguage is the language that the reader has chosen; "" for none. A choice holds for links with the same language as the one at which it was made:
// if the product asks for another now, that one is shown first.
func (p *portalPage) chosenLanguage() string {
	chosen, link, _ := strings.Cut(cookieOf(p.r, languageCookie), ".")
	if link != linkLanguage(p.look().Lang) {
		return ""
	}
	return chosen
}
