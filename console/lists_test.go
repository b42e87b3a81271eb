package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lists answer the first question: to whom, what became of it, and how it stands.
func TestListsSayHowItStands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", `,"description":"Warehouse <b>","event_types":["order.*"]`)
	event, delivery := b.event(t, "acme", `{"type":"order.paid","payload":{"order":17},"external_id":"order-17"}`)
	b.event(t, "acme", `{"type":"user.created","payload":{}}`)
	u := b.loggedIn(t, "operator")

	events := u.get(t, http.StatusOK, "/console/t/acme/events")
	require.Contains(t, events, "1 waiting</span>")
	require.Contains(t, events, "No endpoint matched", "the other one")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events/"+event), "Warehouse &lt;b&gt;")
	list := u.get(t, http.StatusOK, "/console/t/acme/deliveries?external_id=order-17&since=1h")
	require.Contains(t, list, "Warehouse &lt;b&gt;")
	require.Contains(t, list, delivery)
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/deliveries?ended_since=1h"), "No delivery matches.", "it is open")
	require.Contains(t, u.get(t, http.StatusBadRequest, "/console/t/acme/deliveries?status=99"), "must be a status code from 100 to 999")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/deliveries/"+delivery), "&#34;order&#34;: 17", "its payload")

	endpoints := "/console/t/acme/endpoints"
	require.Contains(t, u.get(t, http.StatusOK, endpoints), `<span class="state s-healthy">healthy</span>`)
	require.Contains(t, u.get(t, http.StatusOK, endpoints+"?condition=failing"), "No endpoint matches.")
	require.Contains(t, u.get(t, http.StatusOK, endpoints+"/"+endpoint), "Newest deliveries")
	b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+endpoint+"/pause", "")
	paused := func() bool {
		_, text := u.do(t, http.MethodGet, endpoints+"?condition=paused", nil)
		return strings.Contains(text, "s-paused")
	}
	require.Eventually(t, paused, eventually, poll, "conditions are 2 s old at most")
}

// It is plain which states are chosen, and several can be.
func TestStatesOfTheFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", `,"event_types":["order.*"]`)
	_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	u := b.loggedIn(t, "operator")
	const list, checked = "/console/t/acme/deliveries", ` checked> <span class="state s-`
	none := u.get(t, http.StatusOK, list)
	require.NotContains(t, none, checked)
	require.Contains(t, none, "none is chosen: all are shown")
	both := u.get(t, http.StatusOK, list+"?state=pending&state=held")
	require.Contains(t, both, `value="pending"`+checked+`pending">`)
	require.Contains(t, both, `value="held"`+checked+`held">`)
	require.NotContains(t, both, "none is chosen")
	require.Equal(t, 2, strings.Count(both, checked))
	require.Contains(t, both, delivery)
	require.NotContains(t, u.get(t, http.StatusOK, list+"?state=held"), delivery)
	require.Contains(t, u.get(t, http.StatusBadRequest, list+"?state=gone"), `id="e-state"`)
}

// The form of a replay says what its buttons do, and names endpoints as people do.
func TestReplayFormSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", `,"description":"Warehouse","event_types":["order.*"]`)
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	u := b.loggedIn(t, "operator")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/replays"), "Send deliveries again…")
	form := u.get(t, http.StatusOK, "/console/t/acme/replays/new")
	require.Contains(t, form, "Next: count what would be sent")
	require.Contains(t, form, `<option value="`+endpoint+`">Warehouse (receiver.example/hook)</option>`)
	const asked = "/console/t/acme/replays/new?preview=1&source=events&since=1h&include_unmatched=on&rate_per_minute=100&endpoint_id="
	counted := u.get(t, http.StatusOK, asked+endpoint)
	require.Contains(t, counted, "Send 1 past event again?")
	require.Contains(t, counted, `<button class="go">Send 1 past event again</button>`)
	w, _ := u.post(t, http.StatusSeeOther, "/console/t/acme/replays", "source", "events", "since", "1h", "include_unmatched", "on",
		"rate_per_minute", "100", "endpoint_id", endpoint)
	replay := u.get(t, http.StatusOK, w.Header.Get("Location"))
	require.NotContains(t, replay, `class="flash"`, "its state says how it stands, now and later")
	require.Contains(t, replay, ">Warehouse</a>")
}

// Commands go to the deliveries that were selected; those whose state does not allow it are skipped, and counted.
func TestSelectedDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", `,"event_types":["order.*"]`)
	_, first := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	_, second := b.event(t, "acme", `{"type":"order.paid","payload":2}`)
	u := b.loggedIn(t, "operator")
	const list, selected = "/console/t/acme/deliveries", "/console/t/acme/deliveries/selected"
	u.get(t, http.StatusOK, list)
	w, _ := u.post(t, http.StatusSeeOther, selected, "command", "cancel")
	require.Equal(t, list, w.Header.Get("Location"))
	require.Contains(t, u.get(t, http.StatusOK, list), "Nothing was selected.")

	_, asked := u.post(t, http.StatusOK, selected, "command", "cancel", "id", first, "filter", "state=pending")
	require.Contains(t, asked, "Cancel 1 delivery?")
	require.Contains(t, asked, first)
	w, _ = u.post(t, http.StatusSeeOther, selected, "command", "cancel", "id", first, "sure", "1", "filter", "state=pending", "why", "a mistake")
	require.Equal(t, list+"?state=pending", w.Header.Get("Location"), "back to what was shown")
	require.Contains(t, u.get(t, http.StatusOK, list), "Cancelling 1 delivery.")

	u.post(t, http.StatusSeeOther, selected, "command", "replay", "id", second, "sure", "1")
	require.Contains(t, u.get(t, http.StatusOK, list), "skipped because their state does not allow it: 1")
	u.post(t, http.StatusBadRequest, selected, "command", "discard", "id", second)
}

// A replay to an endpoint that cannot take it says so before it begins.
func TestAReplayWarns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", `,"description":"Warehouse","event_types":["order.*"]`)
	b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+endpoint+"/pause", "")
	u := b.loggedIn(t, "operator")
	page := "/console/t/acme/replays/new?preview=1&source=events&since=1h&include_unmatched=on&rate_per_minute=100&endpoint_id=" + endpoint
	warned := func() bool {
		_, text := u.do(t, http.MethodGet, page, nil)
		return strings.Contains(text, "These endpoints still fail or are stopped.")
	}
	require.Eventually(t, warned, eventually, poll)
}

// The address of the server alone leads to the console.
func TestTheStartPage(t *testing.T) {
	t.Parallel()
	u := setup(t).browser(t)
	w, _ := u.do(t, http.MethodGet, "/", nil)
	require.Equal(t, http.StatusTemporaryRedirect, w.StatusCode)
	require.Equal(t, "/console/", w.Header.Get("Location"))
	w, _ = u.do(t, http.MethodGet, "/favicon.ico", nil)
	require.Contains(t, w.Header.Get("Location"), "/console/assets/icon.svg")
	w, _ = u.do(t, http.MethodPost, "/", nil)
	require.Equal(t, http.StatusNotFound, w.StatusCode)
}

// A command to all that match reaches the open ones among them.
func TestAllThatMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", `,"event_types":["order.*"]`)
	_, first := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	_, other := b.event(t, "acme", `{"type":"order.sent","payload":2}`)
	u := b.loggedIn(t, "operator")
	const list, all = "/console/t/acme/deliveries", "/console/t/acme/deliveries/all/cancel"
	require.Contains(t, u.get(t, http.StatusOK, list+"?event_type=order.paid"), all+"?event_type=order.paid")
	asked := u.get(t, http.StatusOK, all+"?event_type=order.paid")
	require.Contains(t, asked, "Cancel all open deliveries that match?")
	require.Contains(t, asked, "event type order.paid")
	w, _ := u.post(t, http.StatusSeeOther, all, "event_type", "order.paid", "state", "pending")
	require.Contains(t, u.get(t, http.StatusOK, w.Header.Get("Location")), "Cancelling 1 delivery.")
	cancelled := func() (ids []string) {
		for _, entry := range b.api(t, http.StatusOK, "GET", "/v1/audit?action=delivery.cancel", "")["data"].([]any) {
			ids = append(ids, entry.(map[string]any)["subject"].(string))
		}
		return ids
	}
	require.Equal(t, []string{first}, cancelled())
	w, _ = u.post(t, http.StatusSeeOther, all, "event_type", "order.paid", "state", "pending")
	require.Contains(t, u.get(t, http.StatusOK, w.Header.Get("Location")), "Cancelling", "again is no error")
	u.get(t, http.StatusBadRequest, all+"?status=none")
	w, _ = u.do(t, http.MethodGet, all+"?state=delivered", nil)
	require.Equal(t, list+"?state=delivered", w.Header.Get("Location"))
	require.NotContains(t, cancelled(), other)
}

// A delivery shows the bytes that are signed.
func TestDeliveryShowsItsBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", `,"event_types":["order.*"],"payload_format":"envelope"`)
	_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":{"order":17}}`)
	page := b.loggedIn(t, "acme admin").get(t, http.StatusOK, "/console/t/acme/deliveries/"+delivery)
	require.Contains(t, page, "in its envelope")
	require.Contains(t, page, "&#34;type&#34;: &#34;order.paid&#34;")
	require.Contains(t, page, "&#34;order&#34;: 17")
}
