package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var seenOf = regexp.MustCompile(`name="seen" value="([^"]*)"`)

// filterOf is the filter of an endpoint as the API shows it.
func (b *bundle) filterOf(t *testing.T, endpoint string) any {
	t.Helper()
	return b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints/"+endpoint, "")["filter"]
}

// An operator tries a filter with the newest events, corrects it and saves it.
func TestOperatorEditsAFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", `,"description":"<b>Orders","event_types":["order.*"]`)
	for _, amount := range []int{17, 170} {
		b.event(t, "acme", `{"type":"order.paid","payload":{"amount":`+strconv.Itoa(amount)+`}}`)
	}
	b.event(t, "acme", `{"type":"user.created","payload":{"amount":170}}`)
	u := b.loggedIn(t, "operator")
	page := "/console/t/acme/endpoints/" + id
	require.Contains(t, u.get(t, http.StatusOK, page), `href="`+page+`/filter"`)
	text := u.get(t, http.StatusOK, page+"/filter")
	require.Contains(t, text, "2 of 3 match", "all of the type: there is no filter yet")
	require.Contains(t, text, "The endpoint does not want this event type.")

	const filter = `{"payload": {"amount": {"$gte": 100}}}`
	_, text = u.post(t, http.StatusOK, page+"/filter", "filter", filter)
	require.Contains(t, text, "1 of 3 match")
	require.Contains(t, text, "/payload/amount is 17; the filter wants $gte 100.")
	require.Contains(t, text, "<code>/payload/amount/$gte</code> of the filter")
	require.Nil(t, b.filterOf(t, id), "it was tried only")

	_, text = u.post(t, http.StatusOK, page+"/filter", "filter", filter, "payload", `{"amount":"<script>alert(1)</script>"}`)
	require.Contains(t, text, "Your event")
	require.NotContains(t, text, "<script>alert")
	require.Contains(t, text, "&lt;script&gt;alert(1)")

	large := `{"amount":100,"text":"` + strings.Repeat("x", 100<<10) + `"}`
	_, text = u.post(t, http.StatusOK, page+"/filter", "filter", filter, "payload", large)
	require.Contains(t, text, "Your event", "a payload has more room than other forms")

	for typed, says := range map[string]string{
		`{"data": 1}`: `For a field of the payload write {&#34;payload&#34;: {&#34;data&#34;: …}}`,
		`{`:           "is not valid JSON", `{"payload":{"n":{"$regex":"x"}}}`: "/payload/n/$regex: is not supported",
		`{"<b>": 1}`: "/&lt;b&gt;: is no field of an event (type", `[]`: "must be an object",
	} {
		for _, path := range []string{"/filter", "/filter/save"} {
			_, text = u.post(t, http.StatusBadRequest, page+path, "filter", typed)
			require.Contains(t, text, `id="e-filter">`, typed)
			require.Contains(t, text, says, typed)
			requireStructure(t, page, text)
		}
	}
	_, text = u.post(t, http.StatusBadRequest, page+"/filter", "filter", filter, "payload", "{", "type", "x")
	require.Contains(t, text, `id="e-payload">`)
	_, text = u.post(t, http.StatusBadRequest, page+"/filter", "filter", filter, "payload", "{}", "type", "a type")
	require.Contains(t, text, `id="e-type">`)

	seen := seenOf.FindStringSubmatch(text)[1]
	w, _ := u.post(t, http.StatusSeeOther, page+"/filter/save", "filter", filter, "seen", seen)
	require.Equal(t, page, w.Header.Get("Location"))
	require.Contains(t, u.get(t, http.StatusOK, page), "The filter is saved.")
	require.Equal(t, map[string]any{"payload": map[string]any{"amount": map[string]any{"$gte": 100.0}}}, b.filterOf(t, id))
	text = u.get(t, http.StatusOK, page+"/filter")
	require.Contains(t, text, "1 of 3 match")
	require.Contains(t, text, "&#34;$gte&#34;: 100")

	_, text = u.post(t, http.StatusBadRequest, page+"/filter/save", "filter", `{"type":"x"}`, "seen", seen)
	require.Contains(t, text, "was changed in the meantime")
	u.post(t, http.StatusSeeOther, page+"/filter/save", "filter", "", "seen", seenOf.FindStringSubmatch(text)[1])
	require.Nil(t, b.filterOf(t, id), "an empty filter is none")
	u.get(t, http.StatusNotFound, "/console/t/acme/endpoints/ep_1/filter")
}

// The page of an event says of each endpoint whether it matches, and leads to the filter with this event first.
func TestEventSaysWhyItDoesNotMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.endpoint(t, "acme", `,"event_types":["order.*"],"filter":{"payload":{"<i>":{"$startsWith":"<b>"}}}`)
	b.endpoint(t, "acme", `,"description":"Users","event_types":["user.*"]`)
	event, _ := b.event(t, "acme", `{"type":"order.paid","payload":{"<i>":"<script>"}}`)
	for range 21 {
		b.event(t, "acme", `{"type":"order.paid","payload":{"<i>":"<b>x"}}`)
	}
	u := b.loggedIn(t, "acme admin")
	text := u.get(t, http.StatusOK, "/console/t/acme/events/"+event)
	require.Contains(t, text, "It does not want this event type.")
	require.Contains(t, text, `/payload/&lt;i&gt; is &#34;&lt;script&gt;&#34;; the filter wants $startsWith &#34;&lt;b&gt;&#34;.`)
	require.NotContains(t, text, "<script>")
	try := "/console/t/acme/endpoints/" + wants + "/filter?event=" + event
	require.Contains(t, text, `href="`+try+`"`)
	text = u.get(t, http.StatusOK, try)
	require.Contains(t, text, "20 of 21 match", "the 20 newest, and the one that was asked about")
	require.Contains(t, text, "/events/"+event)
	requireStructure(t, try, text)
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/events/"+event+"/payload?cancel=true", "")
	require.Contains(t, u.get(t, http.StatusOK, try), "Its payload is not kept any more.")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events/"+event), "the payload is not kept any more")
	require.Contains(t, u.get(t, http.StatusOK, try+"x"), "20 of 20 match", "no such event")
}

// What a filter asks for and the catalogue does not know is a warning; the filter is saved all the same.
func TestFilterWarns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.api(t, http.StatusCreated, "PUT", "/v1/event-types/order.paid", `{"versions":[{"version":1,"schema":{"properties":{"amount":{}}}}]}`)
	id := b.endpoint(t, "acme", `,"event_types":["order.paid"]`)
	u, customer := b.loggedIn(t, "operator"), b.portal(t, "acme", "manage")
	page := "/console/t/acme/endpoints/" + id + "/filter"
	u.get(t, http.StatusOK, page)
	_, text := u.post(t, http.StatusOK, page, "filter", `{"payload":{"amout":1}}`)
	require.Contains(t, text, "<code>/payload/amout</code> is in none of the schemas of these event types")
	w, _ := u.post(t, http.StatusSeeOther, page+"/save", "filter", `{"payload":{"amout":1}}`)
	require.Equal(t, page, w.Header.Get("Location"))
	require.Contains(t, u.get(t, http.StatusOK, page), "is in none of the schemas")

	page = "/portal/endpoints/" + id + "/filter"
	require.Contains(t, customer.get(t, http.StatusOK, page), "No known message has /payload/amout. Check the spelling.")
	w, _ = customer.post(t, http.StatusSeeOther, page+"/save", "filter", `{"payload":{"amount":1,"total":2}}`)
	require.Equal(t, page, w.Header.Get("Location"))
	require.Contains(t, customer.get(t, http.StatusOK, page), "No known message has /payload/total")
	w, _ = customer.post(t, http.StatusSeeOther, page+"/save", "filter", `{"payload":{"amount":1}}`)
	require.Equal(t, "/portal/endpoints/"+id, w.Header.Get("Location"))
}

// A customer tries filters with a link that permits it, and sets them if it also may manage. Without the capability nothing of a filter is shown.
func TestCustomerEditsAFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", `,"event_types":["order.*"],"filter":{"payload":{"amount":{"$gte":100}}}`)
	for _, amount := range []string{`17`, `170`, `"<script>alert(1)</script>"`, `[1,2]`} {
		b.event(t, "acme", `{"type":"order.paid","payload":{"amount":`+amount+`}}`)
	}
	page := "/portal/endpoints/" + id
	const filter = `{"payload":{"amount":{"$lt":100},"none":1}}`
	for _, link := range []struct {
		scope, fields  string
		try, set, lead bool
	}{
		{"view", "", false, false, false}, {"view", `,"capabilities":["filters"]`, true, false, false},
		{"manage", `,"capabilities":["secrets"]`, false, false, true}, {"manage", `,"capabilities":["filters"]`, true, true, true},
	} {
		u := b.portal(t, "acme", link.scope, link.fields+`,"lang":"en"`)
		text := u.get(t, http.StatusOK, page)
		require.Equal(t, link.try, strings.Contains(strings.ToLower(text), "filter"), "%+v", link)
		require.Equal(t, link.try, strings.Contains(text, "&#34;$gte&#34;: 100"), "%+v", link)
		if link.lead {
			require.Equal(t, link.set, strings.Contains(u.get(t, http.StatusOK, "/portal/endpoints/new"), `name="filter"`), "%+v", link)
		}
		if !link.try {
			u.get(t, http.StatusNotFound, page+"/filter")
			u.post(t, http.StatusNotFound, page+"/filter", "filter", filter)
			continue
		}
		text = u.get(t, http.StatusOK, page+"/filter")
		require.Contains(t, text, "1 of 4 would be sent here with this filter.")
		require.Contains(t, text, "/payload/amount is 17. The filter wants $gte 100.")
		require.Contains(t, text, "/payload/amount is [1,2], and none of its 2 values meets $gte 100.")
		require.NotContains(t, text, "<script>alert")
		require.Equal(t, link.set, strings.Contains(text, page+"/filter/save"))
		_, text = u.post(t, http.StatusOK, page+"/filter", "filter", filter, "payload", `{"none":"<b>"}`)
		require.Contains(t, text, "The message has no /payload/none. The filter wants 1.")
		require.Contains(t, text, "The message has no /payload/amount. The filter wants $lt 100.", "of the own message")
		if !link.set {
			u.post(t, http.StatusNotFound, page+"/filter/save", "filter", filter)
			continue
		}
		for typed, says := range map[string]string{
			`{`: "This is not valid JSON.", `{"payload":{"a<b":{"$regex":1}}}`: "The mistake is here: /payload/a&lt;b/$regex", `1`: "This is not a filter.",
			`{"$or":[{"amount<":1}]}`: `For a field of its content, write {&#34;payload&#34;: {&#34;amount&lt;&#34;: …}}`,
			`{"$eq":1}`:               "The mistake is here: /$eq",
		} {
			_, text = u.post(t, http.StatusBadRequest, page+"/filter/save", "filter", typed)
			require.Contains(t, text, says)
			for _, show := range []string{"", "trial"} { // saved, or only tried
				form := []string{"url", "https://receiver.example/new", "filter", typed}
				if show != "" {
					form = append(form, "show", show)
				}
				_, text = u.post(t, http.StatusBadRequest, "/portal/endpoints/new", form...)
				require.Contains(t, text, says)
			}
		}
		u.post(t, http.StatusSeeOther, page+"/filter/save", "filter", filter)
		require.Contains(t, u.get(t, http.StatusOK, page), "The filter has been saved.")
		u.post(t, http.StatusSeeOther, "/portal/endpoints/new", "url", "https://receiver.example/new", "filter", `{"payload":{"a":"<>"}}`)
	}
	require.Equal(t, map[string]any{"payload": map[string]any{"amount": map[string]any{"$lt": 100.0}, "none": 1.0}}, b.filterOf(t, id))
	newest := b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints?limit=1", "")["data"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"payload": map[string]any{"a": "<>"}}, newest["filter"])
}

// A form for an endpoint sets a filter only where the link permits it.
func TestCustomerWithoutFiltersAddsAnEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.portal(t, "acme", "manage", `,"capabilities":[]`)
	u.get(t, http.StatusOK, "/portal/endpoints/new")
	form := u.form(u.last, "url", "https://receiver.example/new", "filter", `{"type":"x"}`)
	w, _ := u.do(t, http.MethodPost, "/portal/endpoints/new", form)
	require.Equal(t, http.StatusSeeOther, w.StatusCode)
	at, err := url.Parse(w.Header.Get("Location"))
	require.NoError(t, err)
	require.Nil(t, b.filterOf(t, strings.TrimPrefix(at.Path, "/portal/endpoints/")))
}

// A customer tries the filter of an endpoint that is not there yet, with the event types that are chosen for it.
func TestCustomerTriesTheFilterOfANewEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.portal(t, "acme", "manage", `,"lang":"en"`)
	const page, filter = "/portal/endpoints/new", `{"payload":{"amount":{"$gte":100}}}`
	text := u.get(t, http.StatusOK, page)
	require.Contains(t, text, `<button name="show" value="trial" formaction="/portal/endpoints/new#filter">Try</button>`)
	_, text = u.post(t, http.StatusOK, page, "filter", filter, "payload", `{"amount":5}`, "event_types", "order.paid", "show", "trial")
	require.Contains(t, text, "There are no messages to try it with yet.")
	require.Contains(t, text, "/payload/amount is 5. The filter wants $gte 100.", "without any message, one of their own")

	for _, amount := range []string{"17", "170"} {
		b.event(t, "acme", `{"type":"order.paid","payload":{"amount":`+amount+`},"external_id":"<i>`+amount+`"}`)
	}
	b.event(t, "acme", `{"type":"user.created","payload":{"amount":170}}`)
	_, text = u.post(t, http.StatusOK, page, "url", "https://receiver.example/typed", "filter", filter, "event_types", "order.*", "show", "trial")
	require.Contains(t, text, "1 of 3 would be sent here with this filter.")
	require.Contains(t, text, "This event type is not chosen for this endpoint.")
	require.Contains(t, text, `<span class="mono">&lt;i&gt;17</span>`, "a message is known by its reference")
	require.Contains(t, text, `value="https://receiver.example/typed"`)
	require.Contains(t, text, ">"+"{&#34;payload&#34;:{&#34;amount&#34;:{&#34;$gte&#34;:100}}}</textarea>")
	requireStructure(t, page, strings.ReplaceAll(text, "https://app.example/back", "/back"))
	require.Empty(t, b.api(t, http.StatusOK, "GET", "/v1/tenants/acme/endpoints", "")["data"], "to try is not to add")
	_, text = u.post(t, http.StatusBadRequest, page, "filter", filter, "event_types", "!", "show", "trial")
	require.Contains(t, text, `id="e-event_types"`)
}
