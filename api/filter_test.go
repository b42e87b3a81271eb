package api

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/webhook"
)

// noField is what is wrong with a filter about {"data": …}.
const noField = `is no field of an event (type, external_id, ordering_key, tags, payload). ` +
	`For a field of the payload write {"payload": {"data": …}}`

func TestFilterIsTried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/filters/test"
	test := func(body string) map[string]any { return b.ok(t, http.StatusOK, "admin", "POST", path, body).json }
	matched := map[string]any{"matched": true, "undecided": false, "failure": nil, "warnings": []any{}}
	require.Equal(t, matched, test(`{"filter":null,"event":{"type":"a","payload":1}}`))
	require.Equal(t, matched, test(`{"filter":{"payload":{"n":{"$gte":1.0}}},"event":{"type":"a","payload":{"n":1,"n":2}}}`))
	require.Equal(t, matched, test(`{"filter":{"external_id":"x"},"event":{"type":"a","payload":1,"external_id":"x"}}`))
	require.Equal(t, matched, test(`{"filter":{"tags":"x"},"event":{"type":"everpost.a","payload":1,"tags":["w","x"]}}`))
	require.Equal(t, map[string]any{
		"summary": "/payload/n is 17; the filter wants $gte 100.", "pointer": "/payload/n/$gte", "operator": "$gte", "wanted": "100",
		"path": "/payload/n", "found": "17", "missing": false, "elements": 0.0,
	}, test(`{"filter":{"payload":{"n":{"$gte":100}}},"event":{"type":"a","payload":{"n":17}}}`)["failure"])

	event, _ := b.posted(t)
	require.Equal(t, false, test(`{"filter":{"payload":"never"},"event_id":"` + event + `"}`)["matched"])
	b.refused(t, "admin", "POST", path, `{"filter":{"data":1},"event":{"type":"a"}}`,
		"filter at /data", noField, "event.payload", "is required")
	b.refused(t, "admin", "POST", path, `{"filter":{}}`, "event", "is required, or event_id in its place")
	b.refused(t, "admin", "POST", path, `{"filter":{},"event":{"type":"a","payload":1},"event_id":"`+event+`"}`,
		"event", "cannot be given together with event_id")
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/filters/test", `{"filter":{},"event":{"type":"a","payload":1}}`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, `{"filter":{},"event":{"type":"a","payload":1}}`)
}

func TestEventMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func(fields string) string {
		return b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/hook",`+fields+`}`).json["id"].(string)
	}
	event, _ := b.posted(t)
	large := create(`"filter":{"payload":{"n":{"$gte":100}}}`)
	other := create(`"event_types":["nothing"],"filter":{"payload":{"n":{"$gte":100}}}`)
	list := func() map[string]map[string]any {
		found := map[string]map[string]any{}
		for _, one := range b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme/events/"+event+"/matches", "").json["data"].([]any) {
			m := one.(map[string]any)
			found[m["endpoint_id"].(string)] = m
		}
		return found
	}
	found := list()
	require.Equal(t, []any{false, "event_type", nil}, []any{found[other]["matched"], found[other]["reason"], found[other]["failure"]})
	require.Equal(t, []any{false, "filter", false}, []any{found[large]["matched"], found[large]["reason"], found[large]["sent"]})
	require.Equal(t, "/payload/n/$gte", found[large]["failure"].(map[string]any)["pointer"])
	matched := 0
	for _, m := range found {
		if m["matched"] == true {
			require.Nil(t, m["reason"])
			matched++
		}
	}
	require.Equal(t, len(found)-2, matched)
	b.ok(t, http.StatusForbidden, "ingest", "GET", "/v1/tenants/acme/events/"+event+"/matches", "")
}

// A filter sees the tags of a stored event. An event whose payload was removed is a 410.
func TestFilterIsTriedWithAStoredEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event := b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"a","payload":1,"tags":["x"]}`).json["id"].(string)
	body := `{"filter":{"tags":"x"},"event_id":"` + event + `"}`
	require.Equal(t, true, b.ok(t, http.StatusOK, "admin", "POST", "/v1/tenants/acme/filters/test", body).json["matched"])
	b.refused(t, "foreign", "POST", "/v1/tenants/other/filters/test", body, "event_id", "names an event that does not exist")
	b.accepted[0].Event.Removed = webhook.PayloadRemoval{At: testNow(), Reason: webhook.PayloadErased}
	b.ok(t, http.StatusGone, "admin", "POST", "/v1/tenants/acme/filters/test", body)

	filtered := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/x","filter":{"tags":"x"}}`).json["id"]
	found := b.ok(t, http.StatusOK, "admin", "GET", "/v1/tenants/acme/events/"+event+"/matches", "").json["data"].([]any)[0].(map[string]any)
	require.Equal(t, []any{filtered, false, "payload_removed", nil}, []any{found["endpoint_id"], found["matched"], found["reason"], found["failure"]})
}

func TestFilterTestsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/tenants/acme/filters/test"
	ask := func(filter, payload string) string {
		return `{"filter":` + filter + `,"event":{"type":"a","payload":` + payload + `}}`
	}
	large := `"` + strings.Repeat("x", filter.MaxBytes) + `"`
	b.refused(t, "admin", "POST", path, ask(`{"payload":`+large+`}`, "1"), "filter", "is larger than 8192 bytes")
	b.refused(t, "admin", "POST", path, ask(`{"payload":{"$regex":"x"}}`, "1"),
		"filter at /payload/$regex", "is not supported; take $startsWith, $endsWith or $contains")
	b.refused(t, "admin", "POST", path, `{"filter":{}`, "filter", "a comma or } is missing (byte 12)")
	b.refused(t, "admin", "POST", path, `{"filter":{},"event_id":"evt_1"}`, "event_id", "is not an id of the form evt_…")
	payload := `"` + strings.Repeat("x", webhook.DefaultMaxPayload) + `"`
	a := b.ok(t, http.StatusRequestEntityTooLarge, "admin", "POST", path, ask(`{}`, payload))
	require.Contains(t, a.text, "event.payload")
}

// Pages go through all endpoints, also where each ends early because its filters take long.
func TestEventMatchesEndEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, _ := b.posted(t)
	for i := range 60 {
		b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/hook","filter":{"payload":{"n":`+strconv.Itoa(i)+`}}}`)
	}
	pages := func() (sizes []int) {
		path := "/v1/tenants/acme/events/" + event + "/matches?limit=50"
		seen := map[any]bool{}
		for next := ""; ; {
			page := b.ok(t, http.StatusOK, "admin", "GET", path+next, "").json
			for _, one := range page["data"].([]any) {
				seen[one.(map[string]any)["endpoint_id"]] = true
			}
			sizes = append(sizes, len(page["data"].([]any)))
			if page["next_cursor"] == nil {
				require.Len(t, seen, 61)
				return sizes
			}
			next = "&cursor=" + page["next_cursor"].(string)
		}
	}
	require.Equal(t, []int{50, 11}, pages())
	b.server.handlers.filters.work = 1 // less than any explanation
	require.Equal(t, []int{25, 25, 11}, pages())
}

// A portal sets filters if its link permits it, and only then.
func TestPortalSetsFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, _ := b.posted(t)
	path := endpointsPath + "/" + b.endpoints[0].ID.String()
	b.token(t, "without", "admin", `{"kind":"token","scope":"manage","capabilities":["secrets","replay"]}`)
	b.token(t, "with", "admin", `{"kind":"token","scope":"manage","capabilities":["secrets","filters"]}`)
	b.token(t, "looks", "admin", `{"kind":"token","scope":"view","capabilities":["filters"]}`)
	const filtered, test = `{"filter":{"payload":1}}`, `{"filter":{"payload":1},"event":{"type":"a","payload":1}}`
	const whole = `{"url":"https://example.com/hook","filter":{"payload":1}}`
	for _, as := range []string{"without", "looks"} {
		b.ok(t, http.StatusForbidden, as, "PATCH", path, filtered)
		b.ok(t, http.StatusForbidden, as, "PATCH", path, `{"filter":null}`)
		b.ok(t, http.StatusForbidden, as, "POST", endpointsPath, whole)
	}
	require.Contains(t, b.ok(t, http.StatusForbidden, "without", "PATCH", path, filtered).text, `lacks the capability \"filters\"`)
	require.Nil(t, b.endpoints[0].Filter)
	b.ok(t, http.StatusOK, "without", "PATCH", path, `{"description":"mine"}`)
	b.ok(t, http.StatusForbidden, "without", "POST", "/v1/tenants/acme/filters/test", test)
	b.ok(t, http.StatusOK, "looks", "POST", "/v1/tenants/acme/filters/test", test)
	b.ok(t, http.StatusOK, "without", "GET", "/v1/tenants/acme/events/"+event+"/matches", "")
	b.ok(t, http.StatusOK, "with", "PATCH", path, filtered)
	require.NotNil(t, b.endpoints[0].Filter)
	b.ok(t, http.StatusCreated, "with", "POST", endpointsPath, whole)
	b.refused(t, "without", "PATCH", path, `{"other":1}`, "other", "is not a known field")
}

// A field that no schema of the event types lists is a warning; the filter is taken all the same.
func TestFilterIsComparedWithTheCatalogue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, schema := range map[string]string{"order.paid": `{"properties":{"amount":{}}}`, "order.sent": `{"properties":{"by":{}}}`, "order.any": `{}`} {
		b.ok(t, http.StatusCreated, "operator", "PUT", "/v1/event-types/"+name, `{"versions":[{"version":1,"schema":`+schema+`}]}`)
	}
	b.ok(t, http.StatusCreated, "operator", "PUT", "/v1/event-types/order.none", `{}`)
	const asked = `"filter":{"payload":{"amount":1,"amout":{"$gte":2}}}`
	warning := func(pointers ...string) []any {
		all := []any{}
		for _, pointer := range pointers {
			all = append(all, map[string]any{"field": "filter", "pointer": pointer, "message": "is in none of the schemas of these event types"})
		}
		return all
	}
	for types, want := range map[string][]any{
		`["order.paid"]`: warning("/payload/amout"), `["order.sent"]`: warning("/payload/amount", "/payload/amout"),
		`["order.paid","order.sent"]`: warning("/payload/amout"), `["order.paid","order.any"]`: warning(), `["order.paid","order.none"]`: warning(),
		`["order.paid","unknown"]`: warning(), `["order.*"]`: warning(), `["*"]`: warning(),
	} {
		tried := b.ok(t, http.StatusOK, "admin", "POST", "/v1/tenants/acme/filters/test",
			`{`+asked+`,"event":{"type":"x","payload":1},"event_types":`+types+`}`).json
		require.Equal(t, want, tried["warnings"], types)
		made := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/hook",`+asked+`,"event_types":`+types+`}`).json
		if len(want) == 0 {
			require.NotContains(t, made, "warnings", types)
			continue
		}
		require.Equal(t, want, made["warnings"], types)
		path := endpointsPath + "/" + made["id"].(string)
		require.NotContains(t, b.ok(t, http.StatusOK, "admin", "GET", path, "").json, "warnings")
		require.Equal(t, want, b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"description":"x"}`).json["warnings"])
		require.NotContains(t, b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"filter":null}`).json, "warnings")
	}
	byType := b.ok(t, http.StatusOK, "admin", "POST", "/v1/tenants/acme/filters/test", `{`+asked+`,"event":{"type":"order.paid","payload":1}}`)
	require.Equal(t, warning("/payload/amout"), byType.json["warnings"], "without event types, those of the event")
	b.refused(t, "admin", "POST", "/v1/tenants/acme/filters/test", `{`+asked+`,"event":{"type":"a","payload":1},"event_types":["!"]}`,
		"event_types[0]", notAFilter)
}
