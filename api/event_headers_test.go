package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The headers and tags of an event: the answer to its post and lists have the tags, reading it has both.
func TestHeadersAndTags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	const body = `{"type":"order.paid","payload":1,"external_id":"x","headers":{"X-Region":"eu","x-empty":""},"tags":["order:17","EU-west_1/a.b"]}`
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body)
	headers, tags := map[string]string{"X-Region": "eu", "x-empty": ""}, []string{"order:17", "EU-west_1/a.b"}
	require.Equal(t, headers, b.events[0].Headers)
	require.Equal(t, tags, b.events[0].Tags)
	require.Equal(t, []any{"order:17", "EU-west_1/a.b"}, a.json["tags"])
	require.NotContains(t, a.json, "headers")
	again := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body)
	require.Equal(t, a.text, again.text)

	event := eventsPath + "/" + a.json["id"].(string)
	got := b.ok(t, http.StatusOK, "ingest", "GET", event, "")
	require.Equal(t, map[string]any{"X-Region": "eu", "x-empty": ""}, got.json["headers"])
	require.Equal(t, a.json["tags"], got.json["tags"])

	// Other headers or tags are another body.
	for _, other := range []string{strings.Replace(body, `"eu"`, `"us"`, 1), strings.Replace(body, "order:17", "order:18", 1)} {
		b.ok(t, http.StatusUnprocessableEntity, "ingest", "POST", eventsPath, other)
	}

	b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,"headers":{},"tags":[]}`)
	require.Empty(t, b.events[1].Headers)
	require.Nil(t, b.events[1].Tags)
	for filter, want := range map[string]int{"": 2, "?tag=order:17": 1, "?tag=order:1": 0, "?tag=EU-west_1/a.b&type=order.*": 1, "?tag=ORDER:17": 0} {
		list := b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+filter, "")
		require.Len(t, list.json["data"], want, filter)
		require.NotContains(t, list.text, `"headers"`)
	}
	b.refused(t, "ingest", "GET", eventsPath+"?tag=a%20b", "", "tag", notATag)
	b.refused(t, "ingest", "GET", eventsPath+"?tag=", "", "tag", notATag)

	b.ok(t, http.StatusNoContent, "admin", "DELETE", event+"/payload?cancel=true", "")
	got = b.ok(t, http.StatusOK, "ingest", "GET", event, "")
	require.NotContains(t, got.text, "X-Region")
	require.NotContains(t, got.text, "order:17")
}

func TestHeadersAndTagsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(fields string) string { return `{"type":"a","payload":1,` + fields + `}` }
	numbered := func(n int, form string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(form, i)
		}
		return strings.Join(all, ",")
	}
	longest := strings.Repeat("v", webhook.MaxHeaderBytes-len("X-A"))
	for _, fields := range []string{
		`"headers":null,"tags":null`,
		`"headers":{` + numbered(webhook.MaxHeaders, `"X-%d":"v"`) + `}`,
		`"headers":{"X-A":"` + longest + `"}`,
		`"headers":{"Content-Type":"application/cloudevents+json","Authorization":"[redacted]"}`, // a value like any other
		`"tags":[` + numbered(webhook.MaxTags, `"t%d"`) + `]`,
		`"tags":["` + strings.Repeat("x", webhook.MaxTagLength) + `","null","NULL"]`,
	} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, post(fields))
	}
	require.Equal(t, "[redacted]", b.events[3].Headers["Authorization"])

	const reserved, form = "is reserved and cannot be set", "must be printable ASCII, without spaces at its ends"
	for fields, want := range map[string][]string{
		`"headers":[]`:                                       {"headers", "must be an object"},
		`"headers":"X-A: 1"`:                                 {"headers", "must be an object"},
		`"headers":{"X-A":1}`:                                {"headers.X-A", "must be a string"},
		`"headers":{"X-A":null}`:                             {"headers.X-A", "must be a string"},
		`"headers":{"X-A":["1","2"]}`:                        {"headers.X-A", "must be a string"},
		`"headers":{"X A":"1"}`:                              {"headers.X A", "is not the name of a header"},
		`"headers":{"":"1"}`:                                 {"headers.", "is not the name of a header"},
		`"headers":{"X-A":"a\nb"}`:                           {"headers.X-A", form},
		`"headers":{"X-A":"a "}`:                             {"headers.X-A", form},
		`"headers":{"X-A":"ä"}`:                              {"headers.X-A", form},
		`"headers":{"X-A":"` + longest + `v"}`:               {"headers.X-A", "is larger than 4096 bytes, name and value together"},
		`"headers":{"X-A":"1","x-a":"2"}`:                    {"headers.x-a", "is given more than once; case makes no difference"},
		`"headers":{"Webhook-Id":"1"}`:                       {"headers.Webhook-Id", reserved},
		`"headers":{"everpost-attempt":"1"}`:                 {"headers.everpost-attempt", reserved},
		`"headers":{"Content-Length":"1"}`:                   {"headers.Content-Length", reserved},
		`"headers":{"X-Forwarded-For":"10.0.0.1"}`:           {"headers.X-Forwarded-For", reserved},
		`"headers":{` + numbered(21, `"X-%d":"v"`) + `}`:     {"headers", "has more than 20 entries"},
		`"tags":"a"`:                                         {"tags", "must be an array"},
		`"tags":{}`:                                          {"tags", "must be an array"},
		`"tags":[1]`:                                         {"tags[0]", "must be a string"},
		`"tags":[null]`:                                      {"tags[0]", "must be a string"},
		`"tags":[""]`:                                        {"tags[0]", notATag},
		`"tags":["a","a b"]`:                                 {"tags[1]", notATag},
		`"tags":["` + strings.Repeat("x", 65) + `"]`:         {"tags[0]", notATag},
		`"tags":["a","A","a"]`:                               {"tags[2]", "is listed more than once"},
		`"tags":[` + numbered(11, `"t%d"`) + `,"not a tag"]`: {"tags", "has more than 10 entries"},
	} {
		b.refused(t, "ingest", "POST", eventsPath, post(fields), want...)
	}
	b.refused(t, "ingest", "POST", eventsPath+"/batch", `{"events":[{"type":"a","payload":1},`+post(`"headers":{"Host":"a"},"tags":["ä"]`)+`]}`,
		"events[1].headers.Host", reserved, "events[1].tags[0]", notATag)
}

// A batch passes on the headers and tags of each event.
func TestHeadersAndTagsOfABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath+"/batch",
		`{"events":[{"type":"a","payload":1,"headers":{"X-N":"1"},"tags":["one"]},{"type":"a","payload":2}]}`)
	require.Equal(t, map[string]string{"X-N": "1"}, b.batches[0].Events[0].Headers)
	require.Nil(t, b.batches[0].Events[1].Headers)
	events := a.json["events"].([]any)
	require.Equal(t, []any{"one"}, events[0].(map[string]any)["tags"])
	require.NotContains(t, events[1], "tags")
}

// An export reads fewer events at a time if their headers are large.
func TestExportOfLargeHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	headers := map[string]string{}
	for i := range webhook.MaxHeaders {
		headers["X-"+strconv.Itoa(i)] = strings.Repeat("v", 4000)
	}
	text, err := json.Marshal(headers)
	require.NoError(t, err)
	const events = 2 * exportPayloads / (webhook.MaxHeaders * 4000)
	for range events {
		b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"a","payload":1,"headers":`+string(text)+`}`)
	}
	reads := 0
	b.exportRead = func() error {
		reads++
		return nil
	}
	a := b.ok(t, http.StatusOK, "admin", "GET", exportPath, "")
	require.Equal(t, events, strings.Count(a.text, `"headers":{"X-0"`))
	require.Equal(t, 2, reads)
}
