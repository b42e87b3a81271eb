package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page of a message says of each endpoint of the customer that did not get it why, and a filter only to who may see it.
func TestPortalSaysWhoDidNotGetAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.endpoint(t, "acme", `,"description":"Got it","event_types":["order.*"]`)
	b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+got+"/pause", "")
	b.endpoint(t, "acme", `,"description":"Other types","event_types":["user.*"]`)
	b.endpoint(t, "acme", `,"description":"Small","filter":{"payload":{"amount":{"$lt":100}}}`)
	changed := b.endpoint(t, "acme", `,"description":"Changed","event_types":["user.*"]`)
	b.endpoint(t, "other", `,"description":"Foreign","event_types":["user.*"]`)
	event, _ := b.event(t, "acme", `{"type":"order.paid","payload":{"amount":170}}`)
	erased, _ := b.event(t, "acme", `{"type":"news.sent","payload":{"amount":170}}`)
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/events/"+erased+"/payload", "")
	b.api(t, http.StatusOK, "PATCH", "/v1/tenants/acme/endpoints/"+changed, `{"event_types":["*"]}`)
	b.endpoint(t, "acme", `,"description":"Newer"`)

	why := func(u *browser, event string) map[string]string {
		text := u.get(t, http.StatusOK, "/portal/messages/"+event)
		require.NotContains(t, text, "Foreign")
		_, missed, found := strings.Cut(text, `<section id="missed">`)
		require.True(t, found, said(text))
		missed, _, _ = strings.Cut(missed, "</section>")
		said := map[string]string{}
		for _, row := range strings.Split(missed, `<li class="card">`)[1:] {
			_, name, _ := strings.Cut(row, `">`)
			_, name, _ = strings.Cut(name, `">`)
			name, _, _ = strings.Cut(name, "</a>")
			_, row, _ = strings.Cut(row, `<p class="why">`)
			said[name], _, _ = strings.Cut(row, "</p>")
		}
		return said
	}
	want := map[string]string{
		"Other types": "This event type is not chosen for this endpoint.",
		"Small":       "/payload/amount is 170. The filter wants $lt 100.",
		"Changed": "This endpoint would get the message now. It was set up differently at the time, " +
			"or the message was meant for certain other endpoints only.",
		"Newer": "This endpoint was added after the message was created.",
	}
	require.Equal(t, want, why(b.portal(t, "acme", "view", `,"lang":"en","capabilities":["filters"]`), event))
	want["Small"] = "The message does not meet the filter of this endpoint."
	looks := b.portal(t, "acme", "view", `,"lang":"en"`)
	require.Equal(t, want, why(looks, event))
	require.Contains(t, why(looks, erased)["Small"], "can no longer be checked")

	event, _ = b.event(t, "other", `{"type":"user.created","payload":1}`)
	text := b.portal(t, "other", "view").get(t, http.StatusOK, "/portal/messages/"+event)
	require.NotContains(t, text, `id="missed"`, "each endpoint got it")
}

// However many deliveries the newest messages have, the oldest row of a list names its endpoints, too.
func TestPortalNamesEndpointsInEveryRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", `,"description":"Orders A","event_types":["order.*"]`)
	b.endpoint(t, "acme", `,"description":"Orders B","event_types":["order.*"]`)
	for range 13 {
		b.endpoint(t, "acme", `,"description":"News","event_types":["news.*"]`)
	}
	for range 5 {
		b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	}
	for range 20 {
		b.event(t, "acme", `{"type":"news.sent","payload":1}`)
	}
	text := b.portal(t, "acme", "view", `,"lang":"en"`).get(t, http.StatusOK, "/portal/messages")
	const waiting = `<li><span class="chip wait">waiting</span> <span class="soft">Orders `
	require.Equal(t, 5, strings.Count(text, waiting+"A</span></li>"+waiting+"B</span></li>"))
	require.Equal(t, 20, strings.Count(text, `13 waiting</span> </p><p class="soft">`+strings.Repeat("News, ", 3)+`10 more endpoints</p>`))
}
