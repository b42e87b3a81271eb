package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page of an event whose payload was erased says so, and still shows the rest.
func TestErasedPayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, _ := b.event(t, "acme", `{"type":"no.match","payload":{"canary":4711}}`)
	u := b.loggedIn(t, "acme admin")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events/"+event), "4711")
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/events/"+event+"/payload", "")
	text := u.get(t, http.StatusOK, "/console/t/acme/events/"+event)
	require.NotContains(t, text, "4711")
	require.Contains(t, text, "It was erased on request")
	requireStructure(t, "/events/"+event, text)
}

// The page of a tenant that is being deleted shows the progress.
func TestTenantThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	require.Contains(t, u.get(t, http.StatusOK, "/console/tenants/acme"), "Save")
	b.api(t, http.StatusAccepted, "DELETE", "/v1/tenants/acme?everything=true", "")
	text := u.get(t, http.StatusOK, "/console/tenants/acme")
	require.Contains(t, text, "It is being deleted")
	require.Contains(t, text, "Removed so far: 0 rows")
	require.NotContains(t, text, "Save")
	requireStructure(t, "/tenants/acme", text)
}
