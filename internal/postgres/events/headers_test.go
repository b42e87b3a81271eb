package events_test

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// withBoth is an event with headers and tags.
func withBoth() webhook.NewEvent {
	in := storetest.NewEvent("order.paid")
	in.Headers = map[string]string{"X-Region": `eu "west" \ <1>`, "X-Empty": ""}
	in.Tags = []string{"order:17", "NULL", "eu-west_1/a.b"}
	return in
}

// Headers and tags are stored with their event, also where others of the same flush have none, and read where its payload is.
func TestHeadersAndTagsAreStored(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in, other := withBoth(), storetest.NewEvent("order.paid")
	all, err := b.AcceptBatch(t.Context(), webhook.NewBatch{TenantID: "acme", Events: []webhook.NewEvent{other, in, other}})
	require.NoError(t, err)
	require.Equal(t, in.Headers, all[1].Headers, "for the first attempt")
	require.Equal(t, in.Tags, all[1].Event.Tags)
	e, _, err := b.Event(t.Context(), "acme", all[1].Event.ID)
	require.NoError(t, err)
	require.Equal(t, in.Headers, e.Headers)
	require.Equal(t, in.Tags, e.Tags)
	require.Positive(t, e.HeaderSize)
	for _, at := range []int{0, 2} {
		e, _, err := b.Event(t.Context(), "acme", all[at].Event.ID)
		require.NoError(t, err)
		require.Equal(t, all[at].Event, e)
		require.Nil(t, e.Headers)
	}
	require.Equal(t, 2, b.CountOf(t, "events where headers is null and tags is null"))

	start := all[1].Deliveries[0]
	claimed, err := b.Claim(t.Context(), webhook.Claim{Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, Claimant: "me", For: 1})
	require.NoError(t, err)
	require.Equal(t, in.Headers, claimed.Headers)
	contents, err := b.Contents(t.Context(), "acme", []webhook.EventID{all[0].Event.ID, all[1].Event.ID})
	require.NoError(t, err)
	require.Equal(t, in.Headers, contents[all[1].Event.ID].Headers)
	require.Nil(t, contents[all[0].Event.ID].Headers)
	listed, _, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, in.Tags, listed[1].Tags)
	require.Nil(t, listed[1].Headers, "a page of large headers would be large")
	require.Equal(t, e.HeaderSize, listed[1].HeaderSize)
}

// The answer to a repeated request has the tags, as the first one.
func TestRepeatedRequestsGetTheTags(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	in := withBoth()
	in.ExternalID, in.BodySHA256 = "x", sha256.Sum256([]byte("a body"))
	first, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	again, err := b.Accept(t.Context(), in)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, first.Event, again.Event)
}

// A claim fails for headers that cannot be read, which were not written by this program: the request is not sent without them. Another delivery
// of the same flush is not affected.
func TestUnreadableHeadersAreAnError(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	accepted, err := b.Accept(t.Context(), withBoth())
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	b.Exec(t, `update events set headers = '["canary"]' where id = $1`, start.EventID)
	_, err = b.Claim(t.Context(), webhook.Claim{Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, Claimant: "me", For: 1})
	require.ErrorContains(t, err, "read the headers of "+start.EventID.String())
	require.NotContains(t, err.Error(), "canary")
}

// An erasure removes both. It removes the tags of an event whose payload retention has removed before, and that is in the audit log, too.
func TestErasingRemovesHeadersAndTags(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	accepted, err := b.Accept(t.Context(), withBoth())
	require.NoError(t, err)
	id := b.EndIn(t, accepted.Deliveries[0], webhook.StateDelivered).EventID
	_, _, err = erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{id}})
	require.NoError(t, err)
	e, _, err := b.Event(t.Context(), "acme", id)
	require.NoError(t, err)
	require.Nil(t, e.Headers)
	require.Nil(t, e.Tags)
	require.Zero(t, e.HeaderSize)
	require.Equal(t, 1, b.CountOf(t, "events where headers is null and tags is null"))

	accepted, err = b.Accept(t.Context(), withBoth())
	require.NoError(t, err)
	id = b.EndIn(t, accepted.Deliveries[0], webhook.StateDelivered).EventID
	b.Exec(t, `update events set payload = '', payload_sha256 = '', headers = null, payload_removed_at = '2026-01-31', payload_removed_reason = 'retention',
		removed_payload_size = 17 where id = $1`, id)
	_, _, err = erase(t, b, webhook.PayloadErasure{IDs: []webhook.EventID{id}})
	require.NoError(t, err)
	after, _, err := b.Event(t.Context(), "acme", id)
	require.NoError(t, err)
	require.Nil(t, after.Tags)
	require.Equal(t, 17, after.PayloadSize)
	require.Equal(t, webhook.PayloadRetained, after.Removed.Reason, "why the payload was removed")
	require.Equal(t, 2, b.CountOf(t, "audit_log where action = 'event.erase_payload'"))
}

func TestListEventsByTag(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var ids []webhook.EventID
	for i := range 12 {
		in := storetest.NewEvent([]string{"order.paid", "order.sent"}[i%2])
		switch {
		case i%3 == 0:
			in.Tags = []string{"third", "a"}
		case i == 1:
			in.Tags = []string{"one"}
		}
		a, err := b.Accept(t.Context(), in)
		require.NoError(t, err)
		ids = append(ids, a.Event.ID)
	}
	list := func(limit int, f webhook.EventFilter) (found []webhook.EventID) {
		for p := (webhook.Page{Limit: limit}); ; {
			page, _, err := b.ListEvents(t.Context(), "acme", f, p)
			require.NoError(t, err)
			for _, e := range page {
				found = append(found, e.ID)
			}
			if len(page) < limit {
				return found
			}
			p.After = page[limit-1].ID
		}
	}
	for _, limit := range []int{1, 2, 50} {
		require.Equal(t, []webhook.EventID{ids[9], ids[6], ids[3], ids[0]}, list(limit, webhook.EventFilter{Tag: "third"}), limit)
		require.Equal(t, []webhook.EventID{ids[9], ids[3]}, list(limit, webhook.EventFilter{Tag: "a", Type: "order.sent"}), limit)
		require.Equal(t, []webhook.EventID{ids[1]}, list(limit, webhook.EventFilter{Tag: "one"}), limit)
		require.Empty(t, list(limit, webhook.EventFilter{Tag: "On"}), limit)
	}
	other, _, err := b.ListEvents(t.Context(), "other", webhook.EventFilter{Tag: "third"}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, other)
}
