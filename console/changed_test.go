package console_test

import (
	"fmt"
	"net/http"
	"regexp"
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
	require.Contains(t, text, `value="Mine"`)
	require.Equal(t, "29s", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["timeout"])

	u.post(t, http.StatusSeeOther, edit, append(pairs, "seen", seenOf.FindStringSubmatch(text)[1])...)
	require.Equal(t, "Mine", b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+id, "")["description"])
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
