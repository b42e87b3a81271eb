package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Messages to a tenant's own chats are in no list, unless its filter names them. The pages of a list have all else once, whatever their size.
func TestListsLeaveOutTheTenantsChats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	const events, deliveries = "/v1/tenants/acme/events", "/v1/tenants/acme/deliveries"
	for range 10 {
		b.ok(t, http.StatusAccepted, "ingest", "POST", events, `{"type":"order.paid","payload":1}`)
	}
	var chats []string
	for i := range b.accepted { // the newest page of four has one other, and the next one none
		if age := len(b.accepted) - 1 - i; age != 2 && age < 8 {
			b.accepted[i].Event.Type, b.deliveries[i].EventType = webhook.NotificationType, webhook.NotificationType
			chats = append(chats, b.accepted[i].Event.ID.String())
		}
	}
	walk := func(path, idField string) (ids []string) {
		for cursor := ""; ; {
			page := b.ok(t, http.StatusOK, "ingest", "GET", path+cursor, "")
			for _, one := range page.json["data"].([]any) {
				ids = append(ids, one.(map[string]any)[idField].(string))
			}
			next, more := page.json["next_cursor"].(string)
			if !more {
				return ids
			}
			cursor = "&cursor=" + next
		}
	}
	for limit := 1; limit <= 11; limit++ {
		query := fmt.Sprintf("?limit=%d", limit)
		shown := walk(events+query, "id")
		require.Len(t, shown, 3, limit)
		require.NotSubset(t, chats, shown)
		require.ElementsMatch(t, shown, walk(deliveries+query, "event_id"), limit)
		require.Len(t, walk(events+query+"&type=everpost.*", "id"), 7, limit)
		require.Len(t, walk(events+query+"&type=order.*", "id"), 3, limit)
		require.Equal(t, []string{chats[0]}, walk(deliveries+query+"&event_id="+chats[0], "event_id"), limit)
	}
}
