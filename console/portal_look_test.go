package console

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func pngOf(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))))
	return b.Bytes()
}

// webpOf and woff2Of have the headers that are checked, and nothing to see.
func webpOf(size int) []byte {
	content := append([]byte("RIFF....WEBPVP8L"), make([]byte, size)...)
	binary.LittleEndian.PutUint32(content[4:], uint32(len(content)-8))
	return content
}

func woff2Of(size int) []byte {
	content := append([]byte("wOF2"), make([]byte, size)...)
	binary.BigEndian.PutUint32(content[8:], uint32(len(content)))
	return content
}

// Files are what they should be by their content, whatever they are called.
func TestFilesOfTheLookAreChecked(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{"png": pngOf(t, 20, 20), "webp": webpOf(100)} {
		require.NoError(t, CheckImage(content), name)
	}
	for name, content := range map[string][]byte{
		"svg": []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`), "html": []byte("<!doctype html><script>"), "empty": {},
		"gif": []byte("GIF89a"), "large": webpOf(MaxImage), "wide": pngOf(t, 2049, 1), "cut": webpOf(100)[:90],
		"sound": append([]byte("RIFF\x10\x00\x00\x00WAVEfmt "), 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		require.Error(t, CheckImage(content), name)
	}
	require.NoError(t, CheckFont(woff2Of(100)))
	for name, content := range map[string][]byte{"woff": []byte("wOFF" + strings.Repeat(".", 100)), "short": []byte("wOF2"),
		"long": append(woff2Of(100), 0), "large": woff2Of(MaxFont)} {
		require.Error(t, CheckFont(content), name)
	}
}

func TestLookOfThePortal(t *testing.T) {
	t.Parallel()
	logo, font := pngOf(t, 20, 20), woff2Of(100)
	look := PortalLook{Name: "Acme & Co", Color: "#ffee00", Logo: logo, LogoDark: webpOf(50), Favicon: pngOf(t, 16, 16), Font: font}
	s := newMemory().console(t, func(c *Config) { c.Portal = look; c.FrameAncestors = []string{"https://app.example"} })
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w
	}
	page := get("/portal/links/x").Body.String()
	require.Contains(t, page, "<title>Acme &amp; Co</title>")
	require.Contains(t, page, `media="(prefers-color-scheme: dark)"`)
	require.Contains(t, page, `class="own-font"`)
	require.NotContains(t, strings.ToLower(strings.ReplaceAll(page, "everpost:", "")), "everpost")
	for name, media := range map[string]string{"logo": "image/png", "logo-dark": "image/webp", "favicon": "image/png"} {
		from := strings.Index(page, "/portal/assets/"+name+"?v=")
		require.Positive(t, from, name)
		path, _, _ := strings.Cut(page[from:], `"`)
		w := get(path)
		require.Equal(t, media, w.Header().Get("Content-Type"))
		require.Contains(t, w.Header().Get("Cache-Control"), "immutable")
	}
	style := get("/portal/assets/portal.css").Body.String()
	require.Contains(t, style, "--accent:#ffee00;--on-accent:#000000", "black on yellow")
	require.Contains(t, style, `url("/portal/assets/font.woff2?v=`)
	require.Equal(t, font, get("/portal/assets/font.woff2").Body.Bytes())
	policy := get("/portal/links/x").Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "img-src 'self'; connect-src 'self'; font-src 'self'; form-action 'self'")
	require.Contains(t, policy, "frame-ancestors https://app.example")

	for query, says := range map[string]string{
		"?lang=de&theme=dark&embed=true": `<html lang="de" data-theme="dark" data-embed>`, "?theme=light": `<html lang="en" data-theme="light">`,
		"?theme=x&embed=1": `<html lang="en">`,
	} {
		require.Contains(t, get("/portal/links/x"+query).Body.String(), says)
	}
	require.NotContains(t, get("/portal/links/x?embed=true").Body.String(), "<header")
	embed := get("/portal/embed.js")
	require.Equal(t, "cross-origin", embed.Header().Get("Cross-Origin-Resource-Policy"))
	require.Equal(t, "text/javascript; charset=utf-8", embed.Header().Get("Content-Type"))
	require.Contains(t, embed.Body.String(), `customElements.define("everpost-portal"`)
}

// lookWith is the look of a session with a page for new links.
func lookWith(refresh string) webhook.PortalOptions {
	return webhook.PortalOptions{Lang: "de", RefreshURL: refresh}
}

// What a browser says about the session before is not trusted.
func TestTheEndedPageLeadsToNoScript(t *testing.T) {
	t.Parallel()
	s := newMemory().console(t)
	for refresh, shown := range map[string]bool{"https://app.example/x": true, "javascript:alert(1)": false, "//app.example": false} {
		w := httptest.NewRecorder()
		p := s.newPage(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/portal/", http.NoBody))
		p.portal.rememberLook(lookWith(refresh))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/portal/endpoints", http.NoBody)
		for _, c := range w.Result().Cookies() {
			require.Equal(t, "/portal", c.Path)
			r.AddCookie(c)
		}
		ended := httptest.NewRecorder()
		s.ServeHTTP(ended, r)
		require.Equal(t, http.StatusUnauthorized, ended.Code)
		require.Contains(t, ended.Body.String(), "Ihre Sitzung ist abgelaufen", "in the language of the session")
		require.Equal(t, shown, strings.Contains(ended.Body.String(), `href="`+refresh+`"`), refresh)
	}
}

// A sentence about what is to come is not shown beside an attempt that was made since.
func TestASentenceDoesNotOutlastWhatItSpokeOf(t *testing.T) {
	t.Parallel()
	s := newMemory().console(t)
	w := httptest.NewRecorder()
	begun := s.config.Now()
	posted := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/portal/x", http.NoBody)
	require.NoError(t, s.newPage(w, posted).done("/portal/", "It is to be sent."))
	for attempted, want := range map[time.Time]string{
		{}: "It is to be sent.", begun.Add(-time.Second): "It is to be sent.", begun.Add(time.Second): "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/portal/nowhere", http.NoBody)
		for _, c := range w.Result().Cookies() {
			r.AddCookie(c)
		}
		info, err := s.newPage(httptest.NewRecorder(), r).portal.info(portalView{Attempted: attempted})
		require.NoError(t, err)
		require.Equal(t, want, info.Page.Flash)
	}
}
