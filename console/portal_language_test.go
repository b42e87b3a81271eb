package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// languageLink is the path of the link to a page in a language.
func languageLink(t *testing.T, text, lang string) string {
	t.Helper()
	found := regexp.MustCompile(`<a href="(/portal/language[^"]*)" lang="` + lang + `"`).FindStringSubmatch(text)
	require.NotNil(t, found, said(text))
	return html.UnescapeString(found[1])
}

// switchTo follows the link of a page to another language, and returns that page.
func (u *browser) switchTo(t *testing.T, text, lang string) (to, page string) {
	t.Helper()
	w, _ := u.do(t, http.MethodGet, languageLink(t, text, lang), nil)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	to = w.Header.Get("Location")
	_, page = u.do(t, http.MethodGet, to, nil)
	require.Contains(t, page, `<html lang="`+lang+`"`)
	require.Regexp(t, `lang="`+lang+`" hreflang="`+lang+`" aria-current="true"`, page)
	return to, page
}

// A reader chooses the language of the pages. The page stays, and the choice outlives the session.
func TestReaderChoosesTheLanguage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.somePortal(t)
	u := b.portal(t, "acme", "view", `,"lang":"de"`)
	text := u.get(t, http.StatusOK, "/portal/messages?type=order.paid")
	require.Contains(t, text, `<html lang="de">`, "the link's language is the first")
	require.Contains(t, text, ">English</a>")
	require.Contains(t, text, ">Deutsch</a>")
	to, _ := u.switchTo(t, text, "en")
	require.Equal(t, "/portal/messages?type=order.paid", to)
	text = u.get(t, http.StatusOK, "/portal/endpoints/"+ids["endpoints"])
	require.Contains(t, text, `<html lang="en">`)

	u.post(t, http.StatusOK, "/portal/close")
	text = u.get(t, http.StatusUnauthorized, "/portal/endpoints")
	require.Contains(t, text, "Your session has ended", "in the language that was chosen")
	path := b.link(t, "acme", `{"scope":"view","lang":"de","return_url":"https://app.example/back"}`)
	u.get(t, http.StatusOK, path)
	u.post(t, http.StatusSeeOther, path)
	require.Contains(t, u.get(t, http.StatusOK, "/portal/endpoints"), `<html lang="en">`, "also in the next session")
}

// A link with another language than the one at which the reader chose shows its own first.
func TestAnotherLanguageOfTheLinkIsShownFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.browser(t)
	open := func(fields string) string {
		path := b.link(t, "acme", `{"scope":"view"`+fields+`}`)
		text := u.get(t, http.StatusOK, path)
		u.post(t, http.StatusSeeOther, path)
		return text
	}
	text := open(`,"lang":"de"`)
	_, text = u.switchTo(t, text, "en")
	require.Contains(t, text, "This link opens once", "also before there is a session")
	open("")
	u.with["Accept-Language"] = "de"
	require.Contains(t, u.get(t, http.StatusOK, "/portal/endpoints"), `<html lang="de">`, "the browser's: this link has none")
	u.switchTo(t, u.get(t, http.StatusOK, "/portal/endpoints"), "en")
	open(`,"lang":"de"`)
	require.Contains(t, u.get(t, http.StatusOK, "/portal/endpoints"), `<html lang="de">`)
}

// The switch leads to pages of the portal only, and to languages that there are.
func TestSwitchOfTheLanguageLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	u := setup(t).browser(t)
	for _, to := range []string{
		"https://evil.example/", "//evil.example/portal/", "/console/", "/portal//evil.example", "/portalx", `/portal/\\evil.example`,
		"/portal/language?to=/", "", "/portal/%0d%0aX: y", "/portal/%6Canguage?to=/", "/%70ortal/language", "/portal/%2Flanguage",
	} {
		w, _ := u.do(t, http.MethodGet, "/portal/language?"+url.Values{"lang": {"de"}, "to": {to}}.Encode(), nil)
		require.Equal(t, http.StatusSeeOther, w.StatusCode)
		location := w.Header.Get("Location")
		require.True(t, location == "/portal/" || strings.HasPrefix(location, "/portal/%0d"), "%q: %s", to, location)
	}
	for _, lang := range []string{"", "fr", "de.en"} {
		w, _ := u.do(t, http.MethodGet, "/portal/language?"+url.Values{"lang": {lang}, "to": {"/portal/"}}.Encode(), nil)
		require.Equal(t, http.StatusNotFound, w.StatusCode)
		require.Empty(t, w.Header.Values("Set-Cookie"), lang)
	}
	w, _ := u.do(t, http.MethodGet, "/portal/language?lang=de&link=%0d%0aSet-Cookie%3A+a&to=/portal/", nil)
	require.Equal(t, "de.%0D%0ASet-Cookie%3A+a", w.Cookies()[0].Value)
}
