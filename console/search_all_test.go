package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An operator finds what is asked about from the first page, whichever tenant it is of; nobody else does.
func TestSearchAllTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "other", `,"description":"Warehouse in Bonn","event_types":["order.*"]`)
	event, delivery := b.event(t, "other", `{"type":"order.paid","external_id":"order-4711","payload":1}`)
	u := b.loggedIn(t, "operator")
	const all = "/console/search?q="
	require.Contains(t, u.get(t, http.StatusOK, "/console/"), `action="/console/search"`, "the home has the box")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/"), `action="/console/t/acme/search"`, "a tenant's page has that of the tenant")
	for id, path := range map[string]string{
		endpoint: "/console/t/other/endpoints/" + endpoint, event: "/console/t/other/events/" + event, delivery: "/console/t/other/deliveries/" + delivery,
		b.ids["other admin"]: "/console/t/other/keys",
	} {
		w, _ := u.do(t, http.MethodGet, all+id, nil)
		require.Equal(t, path, w.Header.Get("Location"), id)
	}
	found := u.get(t, http.StatusOK, all+"order-4711")
	require.Contains(t, found, "/console/t/other/events/"+event)
	require.Contains(t, found, "/console/t/other/deliveries?event_id="+event)
	for _, part := range []string{"bonn", "receiver.example"} {
		require.Contains(t, u.get(t, http.StatusOK, all+part), "/console/t/other/endpoints/"+endpoint, part)
	}
	require.Contains(t, u.get(t, http.StatusOK, all+"order-47"), "Nothing was found.", "an external id has to be complete")
	require.Contains(t, u.get(t, http.StatusOK, all+strings.Replace(delivery, "dlv", "evt", 1)), "in the 2 tenants that were looked at")
	require.Contains(t, u.get(t, http.StatusOK, all+"state:retrying"), "Filters are for one tenant")
	require.Contains(t, u.get(t, http.StatusOK, all), "What can be searched")
	require.Contains(t, u.get(t, http.StatusOK, all+url.QueryEscape("tenant:<b> order-4711")), "is not a tenant that you can see")
	refused := u.get(t, http.StatusOK, all+strings.Repeat("x", 300))
	require.Contains(t, refused, "<code>external_id</code> must", "the field that the API refuses, and why")
	w, _ := u.do(t, http.MethodGet, all+url.QueryEscape("tenant:other state:retrying"), nil)
	require.Equal(t, "/console/t/other/search?q=tenant%3Aother+state%3Aretrying", w.Header.Get("Location"))
	b.loggedIn(t, "acme admin").get(t, http.StatusNotFound, all+event)
}
