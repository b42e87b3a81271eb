package console_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// What failed at one endpoint is shown, and sent again, by itself.
func TestPortalFailedOfOneEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.endpoint(t, "acme", `,"event_types":["a.one"],"description":"The <b>first</b>"`)
	second := b.endpoint(t, "acme", `,"event_types":["a.two"]`)
	for kind, times := range map[string]int{"a.one": 2, "a.two": 1} {
		for range times {
			_, d := b.event(t, "acme", `{"type":"`+kind+`","payload":1}`)
			b.tried(t, d, webhook.StateDeadLettered, "max_attempts", 503)
		}
	}
	u := b.portal(t, "acme", "manage", `,"lang":"en"`)
	path := "/portal/failed?endpoint=" + first
	require.Contains(t, u.get(t, http.StatusOK, "/portal/endpoints/"+first), `href="`+path+`"`)
	page := u.get(t, http.StatusOK, path)
	require.Contains(t, page, "Failed messages to The &lt;b&gt;first&lt;/b&gt;")
	require.Equal(t, 2, strings.Count(page, `/replay">`), page)
	require.NotContains(t, page, "a.two")
	require.Contains(t, page, `href="/portal/failed/send-again?endpoint=`+first+`"`)
	again := "/portal/failed/send-again?endpoint=" + first
	require.Contains(t, u.get(t, http.StatusOK, again), "Send 2 messages again?")
	w, _ := u.post(t, http.StatusSeeOther, again)
	require.True(t, strings.HasPrefix(w.Header.Get("Location"), path), w.Header.Get("Location"))
	made := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/replays", "")["data"].([]any)
	require.Len(t, made, 1)
	filter, err := json.Marshal(made[0])
	require.NoError(t, err)
	require.Contains(t, string(filter), first)
	require.NotContains(t, string(filter), second)

	require.Equal(t, 3, strings.Count(u.get(t, http.StatusOK, "/portal/failed"), `/replay">`))
	for _, wrong := range []string{"ep_x", strings.Replace(first, first[len(first)-4:], "0000", 1)} {
		u.get(t, http.StatusNotFound, "/portal/failed?endpoint="+wrong)
	}
}
