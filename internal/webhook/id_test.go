package webhook_test

import (
	"encoding/base32"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

func TestIDKeepsTimeAndOrder(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	a, b := webhook.NewEventID(), webhook.NewEventID()
	require.WithinRange(t, a.Time(), before.UTC(), time.Now())
	require.Less(t, a.String(), b.String(), "ids sort by creation")
	require.Len(t, a.String(), len("evt_")+26)
}

func TestIDTextIsCrockfordBase32AndParsesBack(t *testing.T) {
	t.Parallel()
	enc := base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	rapid.Check(t, func(t *rapid.T) {
		var id webhook.EventID
		id[15] = 1 // the id of zeros means none
		copy(id[:15], rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "bytes"))
		require.Equal(t, "evt_"+enc.EncodeToString(id[:]), id.String())
		back, err := webhook.ParseEventID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}

func TestParseIDRefuses(t *testing.T) {
	t.Parallel()
	good := webhook.NewEventID().String()
	for name, in := range map[string]string{
		"empty":              "",
		"another kind":       webhook.NewEndpointID().String(),
		"too short":          good[:len(good)-1],
		"too long":           good + "0",
		"upper case":         "EVT_" + good[4:],
		"a letter left out":  good[:10] + "u" + good[11:],
		"unused bits in use": good[:len(good)-1] + "z",
		"none":               "evt_" + strings.Repeat("0", 26),
		"a line break":       good[:len(good)-1] + "\n",
	} {
		_, err := webhook.ParseEventID(in)
		require.EqualError(t, err, "is not an id of the form evt_…", name)
	}
}

func TestDeliveryIDIsOfItsPairAndSortsWithItsEvent(t *testing.T) {
	t.Parallel()
	event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
	id := webhook.DeliveryIDOf(event, endpoint)
	require.Equal(t, id, webhook.DeliveryIDOf(event, endpoint))
	require.NotEqual(t, id, webhook.DeliveryIDOf(event, webhook.NewEndpointID()))
	require.NotEqual(t, id, webhook.DeliveryIDOf(webhook.NewEventID(), endpoint))
	require.Equal(t, event.Time(), id.Time())
	require.Equal(t, byte(8), id[6]>>4, "a UUID of version 8")
}

func TestIDInJSON(t *testing.T) {
	t.Parallel()
	ref := webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID(), TenantID: "acme"}
	text, err := json.Marshal(ref)
	require.NoError(t, err)
	require.Contains(t, string(text), `"event_id":"evt_`)
	var back webhook.Ref
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, ref, back)
	require.Error(t, json.Unmarshal([]byte(`{"event_id":"ep_1"}`), &back))
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	event := webhook.NewEventID()
	for id, want := range map[string]string{
		event.String(): "event", webhook.NewEndpointID().String(): "endpoint", webhook.NewReplayID().String(): "replay",
		webhook.DeliveryIDOf(event, webhook.NewEndpointID()).String(): "delivery", webhook.NewKeyID().String(): "key",
		webhook.NewAuditID().String(): "audit entry",
	} {
		kind, err := webhook.KindOf(id)
		require.NoError(t, err)
		require.Equal(t, want, kind)
		kind, err = webhook.KindOf(id[:len(id)-1])
		require.Error(t, err)
		require.Equal(t, want, kind, "by its prefix")
	}
	for _, id := range []string{"", "order-1001", webhook.NewLinkID().String(), "EVT_1"} {
		kind, err := webhook.KindOf(id)
		require.Error(t, err, id)
		require.Empty(t, kind, id)
	}
}

// A text is refused, or it is the id's only text.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"", "evt_", webhook.NewEventID().String(), "evt_ZZZZZZZZZZZZZZZZZZZZZZZZZZ", "dlv_06f4q2m0hhf5dd6cs7m9k2q8xw", "evt_\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := webhook.ParseEventID(text); err == nil {
			require.Equal(t, text, id.String())
		} else {
			require.NotEmpty(t, err.Error())
			require.True(t, id.IsZero())
		}
	})
}
