package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// endpointCount is the number of a tenant's endpoints.
func (b *bundle) endpointCount(t *testing.T, tenant string) int {
	t.Helper()
	return len(b.api(t, http.StatusOK, "GET", "/v1/tenants/"+tenant+"/endpoints", "")["data"].([]any))
}

// A form that is sent twice, at the same time or later, makes one thing, and both answers show it. With other values, or from a page
// that was loaded anew, it makes another.
func TestFormsThatAreSentTwice(t *testing.T) { //nolint:tparallel // it goes on with what the clicks made
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	const path = "/console/t/acme/endpoints/new"
	page := u.get(t, http.StatusOK, path)
	form := u.form(page, "url", "https://receiver.example/hook")

	secrets := make([]string, 4)
	t.Run("clicks", func(t *testing.T) {
		for i := range secrets {
			click := *u // with a page of its own
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				w, text := click.do(t, http.MethodPost, path, form)
				require.Equal(t, http.StatusCreated, w.StatusCode, said(text))
				secrets[i] = regexp.MustCompile(`whsec_[A-Za-z0-9+/]{43}=`).FindString(html.UnescapeString(text))
			})
		}
	})
	require.NotEmpty(t, secrets[0])
	for _, secret := range secrets {
		require.Equal(t, secrets[0], secret)
	}
	require.Equal(t, 1, b.endpointCount(t, "acme"))

	w, _ := u.do(t, http.MethodPost, path, u.form(page, "url", "https://receiver.example/other"))
	require.Equal(t, http.StatusCreated, w.StatusCode)
	require.Equal(t, 2, b.endpointCount(t, "acme"), "with other values it is another one")

	w, _ = u.do(t, http.MethodPost, path, u.form(u.get(t, http.StatusOK, path), "url", "https://receiver.example/hook"))
	require.Equal(t, http.StatusCreated, w.StatusCode)
	require.Equal(t, 3, b.endpointCount(t, "acme"), "a new page is a new form")

	w, text := u.do(t, http.MethodPost, path, u.form(page, "url", "nonsense"))
	require.Equal(t, http.StatusBadRequest, w.StatusCode)
	require.Equal(t, form.Get("once"), onceOf.FindStringSubmatch(text)[1], "one that is shown again after a failure is the same form")
}

// Each form that makes something can be sent twice.
func TestFormsHaveAKeyOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	for _, path := range []string{
		"endpoints/new", "endpoints/" + id + "/rotate-secret", "endpoints/" + id + "/resume", "keys", "events/new",
	} {
		require.Regexp(t, onceOf, u.get(t, http.StatusOK, "/console/t/acme/"+path), path)
	}
	b.event(t, "acme", `{"type":"order.paid","payload":{}}`)
	replay := u.form(u.get(t, http.StatusOK, "/console/t/acme/replays/new?preview=1&endpoint_id="+id+"&source=events&since=2026-01-01T00:00:00Z"),
		"endpoint_id", id, "source", "events", "since", "2026-01-01T00:00:00Z")
	require.NotEmpty(t, replay.Get("once"))
	made := map[string]bool{}
	for range 2 {
		w, text := u.do(t, http.MethodPost, "/console/t/acme/replays", replay)
		require.Equal(t, http.StatusSeeOther, w.StatusCode, said(text))
		made[w.Header.Get("Location")] = true
	}
	require.Len(t, made, 1)

	key := u.form(u.get(t, http.StatusOK, "/console/t/acme/keys"), "name", "shop", "scope", "ingest", "days", "30", "shown", "2026-11-28T10:59:59Z")
	before := len(b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/keys", "")["data"].([]any))
	for range 2 {
		w, text := u.do(t, http.MethodPost, "/console/t/acme/keys", key)
		require.Equal(t, http.StatusCreated, w.StatusCode, said(text))
	}
	require.Len(t, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/keys", "")["data"], before+1)
}
