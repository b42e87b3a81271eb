package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A form does not undo what another has changed since it was shown. It keeps what was typed, and the second attempt saves.
func TestAFormUndoesNoOthersChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	edit, seenOf := "/console/t/acme/endpoints/"+id+"/edit", regexp.MustCompile(`name="seen" value="([^"]+)"`)
	seen := seenOf.FindStringSubmatch(u.get(t, http.StatusOK, edit))
	require.NotNil(t, seen)
	b.api(t, http.StatusOK, "PATCH", "/v1/tenants/acme/endpoints/"+id, `{"timeout":"29s"}`)

	pairs := []string{"url", "https://receiver.example/hook", "timeout", "15s", "description", "Mine"}
	_, text := u.post(t, http.StatusBadRequest, edit, append(pairs, "seen", seen[1])...)
	require.Contains(t, text, "The endpoint was changed in the meantime, so nothing was saved")
	require.Contains(t, text, `>Mine</textarea>`)
	require.Equal(t, "29s", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["timeout"])

	u.post(t, http.StatusSeeOther, edit, append(pairs, "seen", seenOf.FindStringSubmatch(text)[1])...)
	require.Equal(t, "Mine", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["description"])
}

// A form that is shown again for another reason is refused all the same when it is saved: a change between is not undone.
func TestAFormThatIsShownAgainUndoesNoOthersChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.eventType(t, "order.paid", `{}`)
	console, portal := "/console/t/acme/endpoints/", "/portal/endpoints/"
	operator, customer := b.loggedIn(t, "operator"), b.portal(t, "acme", "manage")
	for _, test := range []struct {
		u           *browser
		path, saved string
		status      int // of the form that is shown again
		pairs       []string
	}{
		{operator, console + "%s/edit", "", http.StatusOK, []string{"show", "types"}},
		{operator, console + "%s/filter", "/save", http.StatusOK, []string{"filter", `{"type":"x"}`}},
		{operator, console + "%s/filter", "/save", http.StatusBadRequest, []string{"filter", "{"}},
		{customer, portal + "%s/edit", "", http.StatusOK, []string{"show", "types"}},
		{customer, portal + "%s/filter", "/save", http.StatusOK, []string{"filter", `{"type":"x"}`}},
	} {
		id := b.endpoint(t, "acme", "")
		path := fmt.Sprintf(test.path, id)
		mark := seenOf.FindStringSubmatch(test.u.get(t, http.StatusOK, path))[1]
		require.NotEmpty(t, mark, path)
		b.api(t, http.StatusOK, "PATCH", "/v1/tenants/acme/endpoints/"+id, `{"description":"Another's","filter":{"type":"y"}}`)
		_, text := test.u.post(t, test.status, path, append(test.pairs, "url", "https://receiver.example/hook", "seen", mark)...)
		require.Equal(t, mark, seenOf.FindStringSubmatch(text)[1], path)
		_, text = test.u.post(t, http.StatusBadRequest, path+test.saved, "url", "https://receiver.example/hook", "filter", "", "seen", mark)
		require.NotEqual(t, mark, seenOf.FindStringSubmatch(text)[1], "now it was said")
		require.Equal(t, "Another's", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["description"])
	}
}

// Neither does the form of a tenant.
func TestATenantsFormUndoesNoOthersChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	page, seenOf := "/console/tenants/acme", regexp.MustCompile(`name="seen" value="([^"]+)"`)
	seen := seenOf.FindStringSubmatch(u.get(t, http.StatusOK, page))
	require.NotNil(t, seen)
	b.api(t, http.StatusOK, "PATCH", "/v1/tenants/acme", `{"limits":{"endpoints":7}}`)

	_, text := u.post(t, http.StatusBadRequest, page, "name", "Mine", "seen", seen[1])
	require.Contains(t, text, "The tenant was changed in the meantime, so nothing was saved")
	require.Contains(t, text, `value="Mine"`)
	require.EqualValues(t, 7, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme", "")["limits"].(map[string]any)["endpoints"])

	u.post(t, http.StatusSeeOther, page, "name", "Mine", "endpoints", "7", "seen", seenOf.FindStringSubmatch(text)[1])
	require.Equal(t, "Mine", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme", "")["name"])
}

// An operator sets a tenant's retention, and sees why one is refused.
func TestRetentionOfATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	const page = "/console/tenants/acme"
	seenOf := regexp.MustCompile(`name="seen" value="([^"]+)"`)
	seen := func(text string) string { return seenOf.FindStringSubmatch(text)[1] }
	text := u.get(t, http.StatusOK, page)
	_, text = u.post(t, http.StatusBadRequest, page, "payloads", "1h", "deliveries", "1h", "seen", seen(text))
	require.Contains(t, text, "the installation keeps nothing for longer")
	require.Contains(t, text, `name="payloads" value="1h"`)
	u.post(t, http.StatusSeeOther, page, "payloads", "1h", "deliveries", "48h", "seen", seen(text))
	stored := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme", "")["retention"]
	require.Equal(t, map[string]any{"payloads": "1h", "attempts": nil, "deliveries": "48h"}, stored)
	text = u.get(t, http.StatusOK, page)
	require.Contains(t, text, `value="48h"`)
	u.post(t, http.StatusSeeOther, page, "seen", seen(text))
	require.Nil(t, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme", "")["retention"].(map[string]any)["payloads"])
}

// An endpoint whose headers cannot be decrypted still has a page: its deliveries wait, and it says why.
func TestAnEndpointThatCannotBeDecrypted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", `,"headers":{"x-team":"a secret"}`)
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	b.sql(t, `update endpoints set headers_ciphertext = '\x00'`)

	u := b.loggedIn(t, "acme admin")
	text := u.get(t, http.StatusOK, "/console/t/acme/endpoints/"+id)
	require.Contains(t, text, "cannot decrypt this endpoint’s headers or credentials")
	require.Contains(t, text, id)
	require.Contains(t, text, "<dt>Waiting</dt>")
	require.NotContains(t, text, "/edit")
	u.get(t, http.StatusNotFound, "/console/t/acme/endpoints/"+strings.Replace(id, id[len(id)-4:], "0000", 1))
}

// The page of an event for many endpoints shows some of its deliveries, and leads to the others.
func TestAnEventWithManyDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 101 {
		b.endpoint(t, "acme", "")
	}
	id := b.api(t, http.StatusAccepted, "POST", "/v1/tenants/acme/events", `{"type":"order.paid","payload":1}`)["id"]
	text := b.loggedIn(t, "acme admin").get(t, http.StatusOK, fmt.Sprint("/console/t/acme/events/", id))
	require.Len(t, regexp.MustCompile(`data-row=`).FindAllString(text, -1), 100)
	require.Contains(t, text, fmt.Sprintf(`<a href="/console/t/acme/deliveries?event_id=%s">1 more</a>`, id))
}

// The question before all dead letters are discarded holds what was counted: the reason that is typed is no filter, and
// what comes later stays.
func TestTheReasonOfDiscardingIsNoFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	text := u.get(t, http.StatusOK, "/console/t/acme/dead-letters/discard?reason=http_410")
	require.Contains(t, text, `name="reason" value="http_410"`)
	require.Contains(t, text, `name="until" value="20`)
	require.Contains(t, text, `name="why"`)
	w, _ := u.post(t, http.StatusSeeOther, "/console/t/acme/dead-letters/discard", "reason", "http_410", "why", "customer asked")
	require.Equal(t, "/console/t/acme/dead-letters?reason=http_410", w.Header.Get("Location"))
}
