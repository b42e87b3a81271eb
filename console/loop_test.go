package console

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// limited is an API that lists ten dead letters and takes so many commands.
func limited(commands int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			var all []string
			for i := range 10 {
				all = append(all, fmt.Sprintf(`{"id":"dlv_%d"}`, i))
			}
			_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(all, ","))
			return
		}
		commands--
		if commands < 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"detail":"too many requests"}`))
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// saidOf is the sentence that a change leaves for the next page.
func saidOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	for _, c := range w.Result().Cookies() {
		if c.Name == flashCookie {
			text, err := base64.RawURLEncoding.DecodeString(c.Value)
			require.NoError(t, err)
			_, sentence, _ := strings.Cut(string(text), " ") // after when it was made
			return sentence
		}
	}
	return ""
}

// A command to several dead letters that reaches a limit says what was done.
func TestALimitEndsWithWhatWasDone(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := m.console(t)
	token := m.session(webhook.ConsoleSession{TenantID: "acme", Access: webhook.AccessKey})
	selected := []string{"command", commandReplay, "sure", "1"}
	for i := range 10 {
		selected = append(selected, "id", fmt.Sprint("dlv_", i))
	}
	for path, pairs := range map[string][]string{"selected": selected, "discard": nil} {
		path := "/console/t/acme/dead-letters/" + path
		verb := map[bool]string{true: "Sending 3 dead letters again.", false: "Discarding 3 dead letters."}[pairs != nil]
		m.answer = limited(3)
		w := request(s, http.MethodPost, path, keyCookie, token, pairs...)
		require.Equal(t, http.StatusSeeOther, w.Code, path)
		require.Equal(t, verb+" The rest was not reached because of a limit of requests; repeat it in a moment.", saidOf(t, w))
		m.answer = limited(0)
		require.Equal(t, http.StatusTooManyRequests, request(s, http.MethodPost, path, keyCookie, token, pairs...).Code, "nothing was done")
	}
}

// A key that is revoked while a form is carried out leads to the log-in page, and from there to the page of the form.
func TestAKeyThatIsRevokedMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := m.console(t)
	token := m.session(webhook.ConsoleSession{TenantID: "acme", Access: webhook.AccessKey})
	m.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	w := request(s, http.MethodPost, "/console/t/acme/dead-letters/selected", keyCookie, token, "command", commandReplay, "sure", "1", "id", "dlv_1")
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/login?"+url.Values{"to": {"/console/t/acme/dead-letters"}}.Encode(), w.Header().Get("Location"))
}
