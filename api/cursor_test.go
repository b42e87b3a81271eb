package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func FuzzCursor(f *testing.F) {
	f.Add("deliveries\x00acme\x00", "0123456789abcdef", "AAAA")
	f.Add("", "x", "")
	f.Fuzz(func(t *testing.T, binding, position, garbage string) {
		if position != "" && len(position) <= 64 {
			cursor := encodeCursor(binding, position)
			require.Equal(t, cursor, url.QueryEscape(cursor))
			back, err := decodeCursor(binding, cursor)
			require.NoError(t, err)
			require.Equal(t, position, back)
			_, err = decodeCursor(binding+"x", cursor)
			require.Error(t, err)
		}
		if back, err := decodeCursor(binding, garbage); err == nil {
			require.Equal(t, garbage, encodeCursor(binding, back), "a cursor has one spelling")
		}
	})
}

func TestCursorIsBoundToListTenantAndFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	for range 3 {
		b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"order.paid","payload":1}`)
	}
	const events = "/v1/tenants/acme/events"
	cursor := b.ok(t, http.StatusOK, "ingest", "GET", events+"?limit=1&type=order.paid", "").json["next_cursor"].(string)
	b.ok(t, http.StatusOK, "ingest", "GET", events+"?type=order.paid&limit=2&cursor="+cursor, "")

	for name, target := range map[string]string{
		"another list":   "/v1/tenants/acme/deliveries?cursor=" + cursor,
		"without filter": events + "?cursor=" + cursor,
		"another filter": events + "?type=order.sent&cursor=" + cursor,
		"another tenant": "/v1/tenants/other/events?type=order.paid&cursor=" + cursor,
		"garbage":        events + "?type=order.paid&cursor=%00%ff",
		"empty":          events + "?type=order.paid&cursor=",
		"shortened":      events + "?type=order.paid&cursor=" + cursor[:len(cursor)-2],
		"padded":         events + "?type=order.paid&cursor=" + cursor + "==",
		"too long":       events + "?type=order.paid&cursor=" + strings.Repeat("A", 300),
		"another place":  events + "?type=order.paid&cursor=" + base64.RawURLEncoding.EncodeToString(make([]byte, 24)),
	} {
		a := b.ok(t, http.StatusBadRequest, "operator", "GET", target, "")
		require.Equal(t, []string{"cursor", "is not a next_cursor of this list with these filters"}, fieldsOf(t, a), name)
	}
}

// A list read in pages of any size has every entry once, newest first, and next_cursor is null
// exactly on the last page.
func TestListsInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	var want []string
	for i := range maxLimit + 2 {
		a := b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", fmt.Sprintf(`{"type":"order.paid","payload":%d}`, i))
		want = append([]string{a.json["id"].(string)}, want...)
	}
	for _, total := range []int{len(want), maxLimit, 4} {
		b.accepted = b.accepted[len(b.accepted)-total:]
		for _, limit := range []int{maxLimit, 249, 63, 2} {
			var got []string
			pages := 0
			for cursor := ""; ; pages++ {
				target := fmt.Sprintf("/v1/tenants/acme/events?limit=%d", limit)
				if cursor != "" {
					target += "&cursor=" + cursor
				}
				var p client.Page[struct {
					ID string `json:"id"`
				}]
				require.NoError(t, json.Unmarshal([]byte(b.ok(t, http.StatusOK, "ingest", "GET", target, "").text), &p))
				for _, e := range p.Data {
					got = append(got, e.ID)
				}
				if cursor = p.NextCursor; cursor == "" {
					break
				}
			}
			require.Equal(t, want[:total], got)
			require.Equal(t, (total+limit-1)/limit, pages+1, "%d entries by %d", total, limit)
		}
	}
}

// A page of a search may be short or empty, and the next one goes on where it stopped.
func TestAListThatSearchesGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	for i := range 10 {
		b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", fmt.Sprintf(`{"type":"order.paid","payload":%d}`, i))
	}
	require.Len(t, b.deliveries, 10)
	slices.SortFunc(b.deliveries, func(a, c webhook.Delivery) int { return bytes.Compare(a.DeliveryID[:], c.DeliveryID[:]) }) // as the list, backwards
	b.searches, b.deliveries[1].State = 4, webhook.StateCancelled
	wanted := b.deliveries[1].DeliveryID.String()
	var sizes []int
	for cursor := ""; ; {
		var p client.Page[struct {
			ID string `json:"id"`
		}]
		target := "/v1/tenants/acme/deliveries?limit=3&state=cancelled"
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		a := b.ok(t, http.StatusOK, "ingest", "GET", target, "")
		require.NoError(t, json.Unmarshal([]byte(a.text), &p))
		sizes = append(sizes, len(p.Data))
		for _, e := range p.Data {
			require.Equal(t, wanted, e.ID)
		}
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []int{0, 0, 1}, sizes)
}

func TestQueryStringsAreStrict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const base = "/v1/tenants/acme/"
	for target, want := range map[string][]string{
		"events?limit=0":                   {"limit", "must be a whole number from 1 to 250"},
		"events?limit=251":                 {"limit", "must be a whole number from 1 to 250"},
		"events?limit=x":                   {"limit", "must be a whole number from 1 to 250"},
		"events?limit=":                    {"limit", "must be a whole number from 1 to 250"},
		"events?limit=1&limit=2":           {"limit", "is given more than once"},
		"events?stat=x&zzz":                {"stat", "is not a known parameter", "zzz", "is not a known parameter"},
		"events?state=held":                {"state", "is not a known parameter"},
		"events?a=%zz":                     {"query", "is not a valid query string"},
		"events?a;b":                       {"query", "is not a valid query string"},
		"events?type=Order%20paid":         {"type", notAFilter},
		"events?external_id=a%00":          {"external_id", notPrintable(255)},
		"events?external_id=%ff":           {"external_id", notPrintable(255)},
		"events?since=yesterday":           {"since", notATimeOrAge},
		"events?until=2026-01-31T9:30:00Z": {"until", notATimeOrAge},
		"deliveries?state=done":            {"state", "is not a state of a delivery"},
		"deliveries?endpoint_id=evt_1":     {"endpoint_id", "is not an id of the form ep_…"},
		"deliveries?event_id=1":            {"event_id", "is not an id of the form evt_…"},
		"deliveries?event_type=order*":     {"event_type", notAFilter},
		"dead-letters?status=42":           {"status", "must be a status code from 100 to 999"},
		"deliveries?ended_since=soon":      {"ended_since", notATimeOrAge},
		"deliveries?status=99":             {"status", "must be a status code from 100 to 999"},
		"deliveries?external_id=":          {"external_id", notPrintable(255)},
		"dead-letters?external_id=a":       {"external_id", "is not a known parameter"},
		"dead-letters?reason=":             {"reason", notPrintable(255)},
		"dead-letters?state=pending":       {"state", "is not a known parameter"},
		"keys?x=1":                         {"x", "is not a known parameter"},
		"endpoints?x=1":                    {"x", "is not a known parameter"},
		"events?limit=0&since=x&cursor=x&y=z": {
			"y", "is not a known parameter", "limit", "must be a whole number from 1 to 250",
			"cursor", "is not a next_cursor of this list with these filters", "since", notATimeOrAge,
		},
	} {
		b.refused(t, "admin", "GET", base+target, "", want...)
	}
	b.refused(t, "operator", "GET", "/v1/tenants?x=1", "", "x", "is not a known parameter")
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/events", "")
}
