package e2e_test

import (
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// openPortal opens a link of the tenant's portal in a window. The window's pages are the portal's from then on.
func (w *window) openPortal(b *bundle, button string, link fieldsOf) {
	w.t.Helper()
	w.base = b.in.addr["api"] + "/portal"
	w.show(strings.TrimPrefix(b.link(link), w.base), http.StatusOK)
	w.pressButton(button)
	require.Equal(w.t, "/endpoints", w.path())
}

// TestPortal uses the portal as a customer does, in a real browser, with JavaScript and without.
func TestPortal(t *testing.T) { //nolint:tparallel // one browser: its pages are looked at one after another
	t.Parallel()
	product := httptest.NewUnstartedServer(nil)
	product.Start()
	t.Cleanup(product.Close)
	in := ownInstance(t, settings{
		"EVERPOST_PORTAL_NAME": "Acme", "EVERPOST_PORTAL_LOGO": drawLogo(t), "EVERPOST_CONSOLE_FRAME_ANCESTORS": product.URL,
	})
	browser := startBrowser(t)
	for _, scripts := range []bool{true, false} {
		mode := "with JavaScript"
		if !scripts {
			mode = "without JavaScript"
		}
		t.Run(mode, func(t *testing.T) { beCustomer(t, browser, in, scripts) })
	}
	t.Run("every page", func(t *testing.T) { lookAtPortal(t, browser, in) })
	t.Run("in a frame", func(t *testing.T) { embedPortal(t, browser, in, product) })
}

// drawLogo writes a picture and returns its path.
func drawLogo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "logo.png")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, image.NewGray(image.Rect(0, 0, 64, 64))))
	require.NoError(t, f.Close())
	return path
}

func beCustomer(t *testing.T, browser *browsers, in *instance, scripts bool) {
	t.Helper()
	b := newBundle(t, in, in.client(), fmt.Sprintf("customer-%d", tenants.Add(1)))
	r := receivertest.New(t) // it does not know the secret
	w := browser.open(t, in)
	if !scripts {
		w.withoutScripts()
	}
	w.openPortal(b, "Open", fieldsOf{"scope": "manage"})
	require.Contains(t, w.text(), "No endpoints yet")
	w.pressButton("Add an endpoint")
	w.expect(http.StatusBadRequest)
	w.fill("url", "nonsense")
	w.pressButton("Add an endpoint")
	require.Contains(t, w.text(), "Messages cannot be sent to this address.")
	w.fill("url", r.URL()+"/hook")
	w.fill("description", "Orders <b>")
	w.fill("event_types", "order.paid")
	w.pressButton("Add an endpoint")
	require.Contains(t, w.text(), "The endpoint has been added.")
	require.Contains(t, w.text(), "Orders <b>")

	w.pressButton("Send an example")
	w.pressButton("Send")
	require.Contains(t, w.text(), "Accepted by your server (status 200).")
	w.show("/endpoints", http.StatusOK)
	w.await("Orders", !scripts) // the list is up to two seconds old
	w.pressButton("Orders")
	endpoint := w.path()
	w.pressButton("Reveal")
	require.Regexp(t, `^whsec_`, evaluate[string](w, `document.getElementById("secret").textContent`))
	w.pressButton("Done")
	w.pressButton("Verify messages")
	w.pressButton("Ruby")
	require.Contains(t, w.text(), "webhook-signature")
	require.Contains(t, w.text(), `require "openssl"`)

	r.Script("/hook", receivertest.Step{Status: http.StatusBadRequest, Body: "no such order"})
	e, d := b.postOne("order.paid", `{"order":17}`, "external_id", `"ref-17"`)
	b.waitState(d.ID, "dead_lettered")
	w.show("/messages", http.StatusOK)
	w.await("failed", !scripts)
	w.show("/failed", http.StatusOK)
	require.Contains(t, w.text(), "your server did not understand the message (status 400)")
	require.Contains(t, w.text(), "ref-17")
	w.pressButton("Send again")
	require.Contains(t, w.text(), "The message has been queued for sending.")
	b.waitState(d.ID, "delivered")
	w.show("/messages/"+e.ID, http.StatusOK)
	w.await("Your server accepted it after 2 attempts.", !scripts)
	require.Contains(t, w.text(), "no such order")
	require.Contains(t, w.text(), `"order": 17`)
	r.Script("/hook", receivertest.Step{Status: http.StatusBadRequest})
	w.pressButton("Send again")
	w.await("Attempt 3:", !scripts)
	if scripts { // else the page is another one, and a banner is shown once
		require.NotContains(t, w.text(), "queued for sending", "what a banner says does not outlast the attempt")
	}

	w.show(endpoint, http.StatusOK)
	w.pressButton("Pause")
	require.Contains(t, w.text(), "Pause Orders <b>?")
	w.pressButton("Pause")
	require.Contains(t, w.text(), "The endpoint is paused.")
	w.pressButton("Enable")
	require.Contains(t, w.text(), "The endpoint is enabled.")
	w.press(`//header//button[normalize-space()="Close"]`)
	require.Contains(t, w.text(), "You can close this window.")
	w.show("/endpoints", http.StatusUnauthorized)
	require.Contains(t, w.text(), "Your session has ended")
}

// lookAtPortal follows the links of a portal in both languages and themes: see lookAtEveryPage.
func lookAtPortal(t *testing.T, browser *browsers, in *instance) {
	t.Helper()
	b := newBundle(t, in, in.client(), fmt.Sprintf("customer-%d", tenants.Add(1)))
	b.someOfEverything()
	source, missing := axeSource()
	if missing != nil {
		t.Logf("axe-core does not look at the pages: %v", missing)
	}
	for lang, button := range map[string]string{"en": "Open", "de": "Öffnen"} {
		w := browser.open(t, in)
		w.openPortal(b, button, fieldsOf{"scope": "manage", "lang": lang})
		w.pressButton("The well one")
		paths := []string{"/endpoints", "/endpoints/new", w.path(), "/messages", "/messages?type=none.such", "/messages?type=%21", "/failed", "/nowhere",
			"/event-types/order.odd"}
		kinds := map[string]bool{}
		for i := 0; i < len(paths); i++ {
			kind := changingParts.ReplaceAllString(paths[i], "*")
			if i > 8 && kinds[kind] {
				continue
			}
			kinds[kind] = true
			for _, next := range w.look(paths[i], source, maxPageBytes) {
				if !slices.Contains(paths, next) && !strings.HasPrefix(next, "/language") {
					paths = append(paths, next)
				}
			}
		}
		require.Greater(t, len(kinds), 12, "%v", kinds)
		w.look(strings.TrimPrefix(b.link(fieldsOf{"scope": "view", "lang": lang}), w.base), source, maxPageBytes)
	}
}

// embedPortal shows a portal in a page of a product, with the web component.
func embedPortal(t *testing.T, browser *browsers, in *instance, product *httptest.Server) {
	t.Helper()
	b := newBundle(t, in, in.client(), fmt.Sprintf("customer-%d", tenants.Add(1)))
	b.endpoint(newReceiver(t), "/hook", fieldsOf{"description": "Framed"})
	id, key := b.key("admin")
	maker := &bundle{t: t, in: in, client: &apiClient{base: b.client.base, key: key, http: b.client.http}, tenant: b.tenant}
	link := maker.link(fieldsOf{"scope": "view", "embed": true, "lang": "en", "refresh_url": product.URL + "/again"})
	product.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><title>Product</title><script src="%s/portal/embed.js"></script>
<everpost-portal id="portal" src="%s"></everpost-portal>
<script>addEventListener("ended", e => document.title = "ended " + e.detail.refreshURL)</script>`, in.addr["api"], link)
	})
	w := browser.open(t, in)
	w.base = product.URL
	w.show("/", http.StatusOK)
	height := `document.querySelector("iframe").getBoundingClientRect().height`
	eventually(contextFor(t, patience), t, func() string { // it opens by itself, and the frame gets the height of its page
		if now := evaluate[float64](w, height); now != 600 && now > 100 {
			return ""
		}
		return "the frame has its first height"
	})
	require.Equal(t, "Product", evaluate[string](w, `document.title`))
	b.ask(http.StatusNoContent, http.MethodDelete, "/keys/"+id, nil, nil)
	w.expect(http.StatusUnauthorized)
	eventually(contextFor(t, patience), t, func() string { // the session ends with the key that made its link
		evaluate[int](w, `document.getElementById("portal").setAttribute("src", "`+in.addr["api"]+`/portal/endpoints?"+Math.random()), 0`)
		if title := evaluate[string](w, `new Promise(done => setTimeout(() => done(document.title), 300))`); title != "Product" {
			require.Equal(t, "ended "+product.URL+"/again", title)
			return ""
		}
		return "the page was not told that the session has ended"
	})
}
