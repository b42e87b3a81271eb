package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestErasePayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	path := eventsPath + "/" + event
	a := b.ok(t, http.StatusConflict, "admin", "DELETE", path+"/payload", "")
	require.Contains(t, a.json["detail"], delivery, "it names the delivery that is open")
	b.ok(t, http.StatusOK, "ingest", "GET", path+"/payload", "")
	b.ok(t, http.StatusForbidden, "ingest", "DELETE", path+"/payload?cancel=true", "")
	b.refused(t, "admin", "DELETE", path+"/payload?cancel=yes", "", "cancel", "must be true or false")
	b.ok(t, http.StatusNotFound, "admin", "DELETE", eventsPath+"/"+webhook.NewEventID().String()+"/payload", "")

	b.ok(t, http.StatusNoContent, "admin", "DELETE", path+"/payload?cancel=true", "")
	require.Equal(t, []webhook.Command{webhook.CommandCancel}, []webhook.Command{b.signals[0].Command}, "the workflow is told")
	a = b.ok(t, http.StatusGone, "ingest", "GET", path+"/payload", "")
	require.Equal(t, "https://everpost.dev/errors/payload-removed", a.json["type"])
	require.Contains(t, a.json["detail"], "erased on request at 2026-01-31 09:30:00 UTC")
	a = b.ok(t, http.StatusOK, "ingest", "GET", path, "")
	require.Equal(t, map[string]any{"at": "2026-01-31T09:30:00.123456Z", "reason": "erased"}, a.json["payload_removed"])

	b.deliveries[0].State, b.deliveries[0].CompletedAt = webhook.StateCancelled, testNow()
	b.deliveries[0].Reason = webhook.ReasonPayloadErased
	a = b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/deliveries/"+delivery, "")
	require.Contains(t, a.json["summary"], "its payload was erased on request")
	require.Contains(t, a.json["explanation"].(map[string]any)["remedy"], "cannot be sent again")
}

func TestErasePayloadsByExternalID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	const path = eventsPath + "/erase-payloads"
	event := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,"external_id":"one"}`).json["id"]
	b.refused(t, "admin", "POST", path, `{"external_ids":[]}`, "external_ids", "must name at least one external id")
	b.refused(t, "admin", "POST", path, `{"external_ids":["one","one"]}`, "external_ids[1]", "is listed more than once")
	b.refused(t, "admin", "POST", path, `{}`, "external_ids", "is required")
	b.ok(t, http.StatusConflict, "admin", "POST", path, `{"external_ids":["one"]}`)
	require.Empty(t, b.signals)
	a := b.ok(t, http.StatusOK, "admin", "POST", path, `{"external_ids":["one","unknown"],"cancel":true}`)
	require.Equal(t, []any{
		map[string]any{"external_id": "one", "event_id": event, "payload_removed": map[string]any{"at": "2026-01-31T09:30:00.123456Z", "reason": "erased"}},
		map[string]any{"external_id": "unknown", "event_id": nil, "payload_removed": nil},
	}, a.json["data"])
	require.Len(t, b.signals, 1)
}
