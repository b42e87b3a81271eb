package console_test

import (
	"net/http"
	"regexp"
	"sync"
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
func TestFormsThatAreSentTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	const path = "/console/t/acme/endpoints/new"
	page := u.get(t, http.StatusOK, path)
	form := u.form(page, "url", "https://receiver.example/hook")

	secrets := make([]string, 4)
	var clicks sync.WaitGroup
	for i := range secrets {
		click := *u // with a page of its own
		clicks.Go(func() {
			w, text := click.do(t, http.MethodPost, path, form)
			if w.StatusCode == http.StatusCreated {
				secrets[i] = regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`).FindString(text)
			}
		})
	}
	clicks.Wait()
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
	key := u.form(u.get(t, http.StatusOK, "/console/t/acme/keys"), "name", "shop", "scope", "ingest", "days", "30")
	before := len(b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/keys", "")["data"].([]any))
	for range 2 {
		w, text := u.do(t, http.MethodPost, "/console/t/acme/keys", key)
		require.Equal(t, http.StatusCreated, w.StatusCode, said(text))
	}
	require.Len(t, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/keys", "")["data"], before+1)
}
