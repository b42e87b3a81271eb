package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// customerAPI answers as the API does, by the end of a path: a body as JSON, or busy. What it does not know is an empty list.
type customerAPI struct {
	answers map[string]any
	asked   []*url.URL
}

// busy is an answer of an API that has no time.
const busy = http.StatusServiceUnavailable

func (a *customerAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked = append(a.asked, r.URL)
	for path, answer := range a.answers {
		if !strings.HasSuffix(r.URL.Path, path) {
			continue
		}
		if status, ok := answer.(int); ok {
			w.WriteHeader(status)
			answer = client.Problem{Status: status, Detail: "not now"}
		}
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	_, _ = w.Write([]byte(`{"data":[],"next_cursor":""}`))
}

// of are the queries that were asked of a path.
func (a *customerAPI) of(path string) (queries []url.Values) {
	for _, u := range a.asked {
		if strings.HasSuffix(u.Path, path) {
			queries = append(queries, u.Query())
		}
	}
	return queries
}

// show shows a page of the portal in English to who may manage endpoints and try filters.
func (a *customerAPI) show(t *testing.T, method, path string, typed ...string) *httptest.ResponseRecorder {
	t.Helper()
	m := newMemory()
	m.answer = a.ServeHTTP
	token := m.session(webhook.ConsoleSession{
		TenantID: "acme", Access: webhook.AccessManage, Portal: webhook.PortalOptions{Lang: "en", Filters: true, Replay: true},
	})
	return request(m.console(t), method, path, portalCookie, token, typed...)
}

// listedOf is a whole list.
func listedOf[T any](rows ...T) client.Page[T] { return client.Page[T]{Data: rows} }

var noon = client.Time{Time: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}

func eventTo(name string, outcomes client.EventOutcomes, endpoints ...string) client.ListedEvent {
	return client.ListedEvent{Event: client.Event{ID: "evt_" + name, Type: "order." + name, CreatedAt: noon, EndpointIDs: endpoints}, Outcomes: outcomes}
}

// rowOf is the row of a message, without markup that tests do not look at.
func rowOf(t *testing.T, text, name string) string {
	t.Helper()
	_, row, found := strings.Cut(text, `/portal/messages/evt_`+name+`"`)
	require.True(t, found, name)
	row, _, _ = strings.Cut(row, "</tr>")
	_, row, _ = strings.Cut(row, "<td>")
	return row
}

// endpointRows are endpoints named after the last letter of their ids.
func endpointRows(letters string) client.Page[client.EndpointCondition] {
	var all []client.EndpointCondition
	for _, letter := range letters {
		name := string(letter)
		all = append(all, client.EndpointCondition{EndpointID: "ep_" + name, Description: "Shop " + name, URL: "https://x.example/" + name})
	}
	return listedOf(all...)
}

// Each row says to which endpoints its message went and how, and the list asks for deliveries once at most.
func TestRowsOfMessagesNameEndpoints(t *testing.T) {
	t.Parallel()
	const sent, waiting = `<span class="chip good">sent</span>`, `<span class="chip wait">waiting</span>`
	shop := func(letter string) string { return ` <span class="soft">Shop ` + letter + `</span>` }
	settledRows := []client.ListedEvent{
		eventTo("sent", client.EventOutcomes{Delivered: 2}, "ep_b", "ep_a"),
		eventTo("many", client.EventOutcomes{Delivered: 4, Failed: 1}, "ep_a", "ep_b", "ep_c", "ep_d", "ep_e"),
		eventTo("gone", client.EventOutcomes{}, "ep_a"), eventTo("none", client.EventOutcomes{}),
		{Event: client.Event{ID: "evt_x", Type: webhook.NotificationType}},
	}
	a := &customerAPI{answers: map[string]any{"/events": listedOf(settledRows...), "/endpoint-conditions": endpointRows("abcde")}}
	text := a.show(t, http.MethodGet, "/portal/messages").Body.String()
	require.Contains(t, rowOf(t, text, "sent"), "<li>"+sent+shop("a")+"</li><li>"+sent+shop("b")+"</li>")
	require.Contains(t, rowOf(t, text, "many"), `<span class="chip good">4 sent</span> <span class="chip bad">1 failed</span> </p>`+
		`<p class="soft">Shop a, Shop b, Shop c, 2 more endpoints</p>`)
	require.Contains(t, rowOf(t, text, "gone"), "What became of this message is no longer kept.")
	require.Contains(t, rowOf(t, text, "gone"), "Shop a")
	require.Contains(t, rowOf(t, text, "none"), "Not sent: no endpoint was set up for this message.")
	require.NotContains(t, text, "evt_x", "that is of the operators' chats")
	require.Empty(t, a.of("/deliveries"), "the counts say it")

	// What the counts do not say is read in one request, of those that are looked for; where that does not reach, or cannot be read now, the counts stay.
	mixed := client.EventOutcomes{Delivered: 1, Waiting: 1}
	late := eventTo("late", mixed, "ep_a", "ep_b")
	late.CreatedAt = client.Time{Time: noon.Add(-time.Hour)}
	a.answers["/events"] = listedOf(settledRows[0], eventTo("mixed", mixed, "ep_a", "ep_b"),
		eventTo("replayed", client.EventOutcomes{Delivered: 2}, "ep_a"), late)
	a.answers["/deliveries"] = client.Page[client.Delivery]{NextCursor: "more", Data: []client.Delivery{
		{EventID: "evt_mixed", EndpointID: "ep_b", State: client.DeliveryRetrying},
		{EventID: "evt_mixed", EndpointID: "ep_a", State: client.DeliveryDelivered},
		{EventID: "evt_replayed", EndpointID: "ep_c", State: client.DeliveryDelivered},
		{EventID: "evt_replayed", EndpointID: "ep_a", State: client.DeliveryDelivered},
		{EventID: "evt_late", EndpointID: "ep_a", State: client.DeliveryDelivered},
	}}
	const counts = `<span class="chip good">1 sent</span> <span class="chip wait">1 waiting</span> </p><p class="soft">Shop a, Shop b</p>`
	text = a.show(t, http.MethodGet, "/portal/messages?type=order.*&external_id=17").Body.String()
	require.Contains(t, rowOf(t, text, "mixed"), "<li>"+sent+shop("a")+"</li><li>"+waiting+shop("b")+"</li>")
	require.Contains(t, rowOf(t, text, "replayed"), "<li>"+sent+shop("a")+"</li><li>"+sent+shop("c")+"</li>")
	require.Contains(t, rowOf(t, text, "late"), counts)
	require.Equal(t, []url.Values{{
		"limit": {"250"}, "event_type": {"order.*"}, "external_id": {"17"}, "since": {"2026-11-24T11:00:00Z"}, "until": {"2026-11-24T12:00:00.000001Z"},
	}}, a.of("/deliveries"))
	a.answers["/deliveries"] = busy
	text = a.show(t, http.MethodGet, "/portal/messages").Body.String()
	require.Contains(t, rowOf(t, text, "mixed"), counts)
}

func typeWithExample() client.EventType {
	return client.EventType{Name: "order.paid", State: "active", Versions: []client.EventTypeVersion{
		{Version: 1, Examples: []json.RawMessage{json.RawMessage(`{"order":17}`)}},
	}}
}

// A page that cannot read something now does not say that there is none of it, or that something is wrong with what was typed.
func TestBusyPagesOfThePortalSayNothingUntrue(t *testing.T) {
	t.Parallel()
	endpoint := client.Endpoint{ID: "ep_a", URL: "https://x.example/a", State: "active", Signature: "v1", EventTypes: []string{"order.paid"}}
	paid := typeWithExample()
	event := client.AcceptedEvent{Event: client.Event{ID: "evt_1", Type: "order.paid", CreatedAt: noon}}
	for name, test := range map[string]struct {
		path       string
		answers    map[string]any
		typed      []string // of a form; none: the page is shown
		status     int
		says, hide []string
	}{
		"the messages": {
			path: "/portal/messages?type=order.paid", answers: map[string]any{"/events": busy}, status: http.StatusServiceUnavailable,
			says: []string{"There is a lot going on right now."}, hide: []string{"not a valid event type", "No message matches", "No messages yet"},
		},
		"the entry of what failed": {
			path: "/portal/endpoints", answers: map[string]any{"/dead-letters": busy}, status: http.StatusOK, says: []string{`href="/portal/failed"`},
		},
		"how many failed": {
			path: "/portal/failed/send-again", answers: map[string]any{"/groups": busy}, status: http.StatusOK,
			says: []string{"Send all failed messages again?"}, hide: []string{"Send 0"},
		},
		"messages for a filter": {
			path:    "/portal/endpoints/ep_a/filter",
			answers: map[string]any{"/endpoints/ep_a": endpoint, "/events": busy, "/test": client.FilterResult{Matched: true}}, status: http.StatusOK,
			says: []string{"This cannot be tried right now."}, hide: []string{"There are no messages"},
		},
		"a filter": {
			path: "/portal/endpoints/ep_a/filter", answers: map[string]any{"/endpoints/ep_a": endpoint, "/test": busy}, status: http.StatusBadRequest,
			says: []string{"There is a lot going on right now.", "This cannot be tried right now."},
			hide: []string{"Correct the marked fields", "A limit has been reached"},
		},
		"an example that is asked for": {
			path: "/portal/endpoints/ep_a/test", answers: map[string]any{
				"/endpoints/ep_a": endpoint, "/event-types/order.paid": busy, "/event-types": listedOf(typeOf("order.paid", "", "active")),
			},
			typed: []string{"load", "example", "type", "order.paid", "payload", `{"mine":1}`}, status: http.StatusOK,
			says: []string{"The example cannot be read right now.", "mine"},
		},
		"an example that is not asked for": {
			path: "/portal/endpoints/ep_a/test", answers: map[string]any{"/endpoints/ep_a": endpoint, "/event-types/order.paid": busy, "/event-types": busy},
			status: http.StatusOK, hide: []string{"The example cannot be read right now."},
		},
		"endpoints for an example": {
			path: "/portal/event-types/order.paid", answers: map[string]any{"/event-types/order.paid": paid, "/endpoint-conditions": busy},
			status: http.StatusOK, says: []string{"Your endpoints cannot be shown right now."}, hide: []string{"add an endpoint first", "Send this example"},
		},
		"who did not get a message": {
			path: "/portal/messages/evt_1", answers: map[string]any{"/events/evt_1": event, "/matches": busy, "/payload": busy}, status: http.StatusOK,
			says: []string{"It cannot be checked right now which endpoints", "The content cannot be read right now."}, hide: []string{"None of the endpoints"},
		},
	} {
		a := &customerAPI{answers: maps.Clone(test.answers)}
		method := http.MethodGet
		if len(test.typed) > 0 {
			method = http.MethodPost
		}
		w := a.show(t, method, test.path, test.typed...)
		require.Equal(t, test.status, w.Code, name)
		for _, text := range test.says {
			require.Contains(t, w.Body.String(), text, name)
		}
		for _, text := range test.hide {
			require.NotContains(t, w.Body.String(), text, name)
		}
	}
}

// What was typed into a search and cannot be looked for is said by its field, and is no search without hits.
func TestRefusedSearchNamesItsField(t *testing.T) {
	t.Parallel()
	for field, says := range map[string]string{"type": "This is not a valid event type.", "external_id": "This value cannot be used."} {
		m := newMemory()
		m.answer = func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") && r.URL.Query().Has(field) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"errors":[{"field":%q,"message":"is wrong"}]}`, field)
				return
			}
			_, _ = w.Write([]byte(`{"data":[]}`))
		}
		token := m.session(webhook.ConsoleSession{TenantID: "acme", Access: webhook.AccessView, Portal: webhook.PortalOptions{Lang: "en"}})
		w := request(m.console(t), http.MethodGet, "/portal/messages?"+field+"=x", portalCookie, token)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), says)
		require.Equal(t, 1, strings.Count(w.Body.String(), `role="alert"`))
		require.NotContains(t, w.Body.String(), "No message matches")
	}
}

// A page of a message with as many endpoints as it compares at a time has its budget, and leads to the others.
func TestEndpointsWithoutAMessageAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 300)
	rows := make([]client.EventMatch, 25)
	for i := range rows {
		rows[i] = client.EventMatch{
			EndpointID: "ep_" + strconv.Itoa(i), URL: "https://" + long, State: "active", Reason: new("filter"),
			Failure: &client.FilterFailure{Path: "/payload/" + long, Found: long, Wanted: long, Operator: "$eq"},
		}
	}
	a := &customerAPI{answers: map[string]any{
		"/events/evt_1": client.AcceptedEvent{Event: client.Event{ID: "evt_1", Type: "order.paid", CreatedAt: noon}},
		"/matches":      client.Page[client.EventMatch]{Data: rows, NextCursor: "further"},
	}}
	text := a.show(t, http.MethodGet, "/portal/messages/evt_1").Body.String()
	require.Equal(t, 25, strings.Count(text, `<p class="why">`))
	require.Less(t, len(text), 100<<10)
	require.Contains(t, text, `href="/portal/messages/evt_1?matches=further#missed"`)
	a.show(t, http.MethodGet, "/portal/messages/evt_1?matches=further")
	require.Equal(t, "further", a.of("/matches")[1].Get("cursor"))
}

// A secret of a scheme with one signature changes at once, and nobody is told that the old one still counts.
func TestSecretOfOneSignatureChangesAtOnce(t *testing.T) {
	t.Parallel()
	for signature, twoKeys := range map[string]bool{"v1": true, "hex": false} {
		a := &customerAPI{answers: map[string]any{
			"/endpoints/ep_a": client.Endpoint{ID: "ep_a", URL: "https://x.example/a", Signature: signature},
			"/rotate-secret":  client.Rotated{Secret: "whsec_new", OldUntil: noon}, "/health": client.EndpointHealth{},
		}}
		m := newMemory()
		m.answer = a.ServeHTTP
		token := m.session(webhook.ConsoleSession{
			TenantID: "acme", Access: webhook.AccessManage, Portal: webhook.PortalOptions{Lang: "en", Secrets: true},
		})
		s := m.console(t)
		text := request(s, http.MethodGet, "/portal/endpoints/ep_a/rotate-secret", portalCookie, token).Body.String()
		require.Equal(t, twoKeys, strings.Contains(text, "signed with both the old and the new secret"), signature)
		require.Equal(t, !twoKeys, strings.Contains(text, "no longer with the old one"), signature)
		text = request(s, http.MethodPost, "/portal/endpoints/ep_a/rotate-secret", portalCookie, token).Body.String()
		require.Contains(t, text, "whsec_new", signature)
		require.Equal(t, twoKeys, strings.Contains(text, "The old secret is valid until:"), signature)
		text = request(s, http.MethodGet, "/portal/endpoints/ep_a/pause", portalCookie, token).Body.String()
		require.NotContains(t, text, "0 messages", signature)
		require.Contains(t, text, "New messages are kept for a limited time", signature)
	}
}

// An example has no number, and who gets numbers is told so. The form says how they are read.
func TestExamplesHaveNoNumber(t *testing.T) {
	t.Parallel()
	const says = "An example has no number."
	for by, numbers := range map[string]bool{"number": true, "none": false} {
		a := &customerAPI{answers: map[string]any{
			"/endpoints/ep_a":         client.Endpoint{ID: "ep_a", URL: "https://x.example/a", Ordering: client.Ordering{By: by}},
			"/endpoint-conditions":    endpointRows("a"),
			"/event-types/order.paid": typeWithExample(), "/test": client.Attempt{Decision: client.DecisionDelivered},
		}}
		require.Equal(t, numbers, strings.Contains(a.show(t, http.MethodGet, "/portal/endpoints/ep_a/test").Body.String(), says), by)
		require.NotContains(t, a.show(t, http.MethodGet, "/portal/event-types/order.paid").Body.String(), says, "it is not chosen yet")
		text := a.show(t, http.MethodPost, "/portal/event-types/order.paid", "endpoint", "ep_a", "example", "1").Body.String()
		require.Contains(t, text, "Accepted by your server.")
		require.Equal(t, numbers, strings.Contains(text, says), by)
	}
	text := (&customerAPI{}).show(t, http.MethodGet, "/portal/endpoints/new").Body.String()
	require.Contains(t, text, "<pre>everpost-ordering-key: order-17\neverpost-sequence: 3\neverpost-line: 1790000000000000</pre>")
}

// The number beside a group of event types says what it counts.
func TestGroupsSayWhatTheyCount(t *testing.T) {
	t.Parallel()
	a := &customerAPI{answers: map[string]any{"/event-types": listedOf(
		typeOf("endpoint.added", "Endpoints", "active"), typeOf("endpoint.gone", "Endpoints", "active"), typeOf("order.paid", "Orders", "active"))}}
	text := a.show(t, http.MethodGet, "/portal/endpoints/new").Body.String()
	require.Contains(t, text, `<summary>Endpoints <span class="soft">2 event types</span></summary>`)
	require.Contains(t, text, `<summary>Orders <span class="soft">1 event type</span></summary>`)
}

// A time is labelled by what happened then, in each list and beside each attempt.
func TestTimesSayWhatHappenedThen(t *testing.T) {
	t.Parallel()
	delivery := client.Delivery{
		ID: "dlv_1", EventID: "evt_1", EndpointID: "ep_a", EventType: "order.paid", State: "dead_lettered", Attempts: 1, CreatedAt: noon, CompletedAt: noon,
	}
	a := &customerAPI{answers: map[string]any{
		"/events": listedOf(eventTo("1", client.EventOutcomes{Failed: 1}, "ep_a")), "/deliveries": listedOf(delivery), "/dead-letters": listedOf(delivery),
		"/endpoints/ep_a":   client.Endpoint{ID: "ep_a", URL: "https://x.example/a"},
		"/events/evt_1":     client.AcceptedEvent{Event: client.Event{ID: "evt_1", CreatedAt: noon}, Matched: 1},
		"/deliveries/dlv_1": delivery, "/attempts": listedOf(client.Attempt{Number: 1, StartedAt: noon, LatencyMS: 35}), "/stats": http.StatusNotFound,
		"/health": client.EndpointHealth{}, "/test": client.FilterResult{Matched: true},
	}}
	for path, says := range map[string]string{
		"messages": `<th scope="col" class="n">Created</th>`, "endpoints/ep_a": `<th scope="col" class="n">Created</th>`,
		"failed":         `<th scope="col">Failed</th>`,
		"messages/evt_1": `Sent <time class="at"`, "endpoints/ep_a/filter": `Created <time`,
	} {
		require.Contains(t, a.show(t, http.MethodGet, "/portal/"+path).Body.String(), says, path)
	}
	require.Contains(t, a.show(t, http.MethodGet, "/portal/messages/evt_1").Body.String(), "</time> · took 35 ms")
}
