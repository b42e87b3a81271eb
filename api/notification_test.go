package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) Settings(ctx context.Context, tenant string) (webhook.NotificationSettings, error) {
	if tenant != "" {
		if _, err := m.Tenant(ctx, tenant); err != nil {
			return webhook.NotificationSettings{}, err
		}
	}
	defer m.lock()()
	return m.notifications[tenant], nil
}

func (m *memory) Put(ctx context.Context, _ webhook.Actor, tenant string, in webhook.NotificationInput) (webhook.NotificationSettings, error) {
	if _, err := m.Settings(ctx, tenant); err != nil {
		return webhook.NotificationSettings{}, err
	}
	stored := webhook.NotificationSettings{PortalURL: in.PortalURL}
	for _, c := range in.Channels {
		shown := webhook.Channel{ID: c.ID, Kind: c.Kind, Notices: c.Notices, EndpointIDs: c.EndpointIDs, State: webhook.ChannelActive}
		if c.ID.IsZero() {
			shown.ID = webhook.NewChannelID()
		}
		if c.Kind == webhook.ChannelEmail {
			shown.Address, shown.State = c.Target, webhook.ChannelUnconfirmed
		}
		stored.Channels = append(stored.Channels, shown)
	}
	defer m.lock()()
	if m.notifications == nil {
		m.notifications = map[string]webhook.NotificationSettings{}
	}
	m.notifications[tenant] = stored
	return stored, nil
}

const channelPath = "/v1/tenants/acme/notifications"

// What GET shows may be sent back. A chat's target is never shown.
func TestNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.SendsMail = true })
	r := b.do(t, "admin", http.MethodPut, channelPath, `{"portal_url":"https://app.example/hooks","channels":[
		{"kind":"email","target":"ops@example.com","on":["disabled","dead_letters"],"endpoint_ids":["ep_06f4q2m0hhf5dd6cs7m9k2q8xw"]},
		{"kind":"slack","target":"https://hooks.example/secret","on":["failing"]}]}`)
	require.Equal(t, http.StatusOK, r.StatusCode, r.text)
	require.NotContains(t, r.text, "secret")
	require.Contains(t, r.text, `"target":"ops@example.com","on":["disabled","dead_letters"],"endpoint_ids":["ep_06f4q2m0hhf5dd6cs7m9k2q8xw"],`+
		`"state":"unconfirmed"`)
	require.Contains(t, r.text, `"target":"[redacted]","on":["failing"],"endpoint_ids":[],"state":"active"`)

	shown := b.do(t, "admin", http.MethodGet, channelPath, "")
	require.Equal(t, r.text, shown.text)
	again := b.do(t, "admin", http.MethodPut, channelPath, shown.text)
	require.Equal(t, http.StatusOK, again.StatusCode, again.text)
	require.Equal(t, shown.text, again.text)

	r = b.do(t, "operator", http.MethodPut, "/v1/notifications", `{"channels":[{"kind":"webhook","target":"https://x.example","on":["recovered"]}]}`)
	require.Equal(t, http.StatusOK, r.StatusCode, r.text)
	require.Len(t, b.notifications[""].Channels, 1)
}

// Without a mail server, mail channels that are stored may stay as they are, and no other address is taken.
func TestStoredMailChannelsStayWithoutMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.notifications = map[string]webhook.NotificationSettings{"acme": {Channels: []webhook.Channel{
		{ID: webhook.NewChannelID(), Kind: webhook.ChannelEmail, Address: "ops@example.com", Notices: webhook.Notices(0).With(webhook.NoticeFailing)},
		{ID: webhook.NewChannelID(), Kind: webhook.ChannelEmail, Address: "dev@example.com", Notices: webhook.Notices(0).With(webhook.NoticeFailing)},
	}}}
	shown := b.ok(t, http.StatusOK, "admin", http.MethodGet, channelPath, "").text
	b.ok(t, http.StatusOK, "admin", http.MethodPut, channelPath, strings.Replace(shown, `"on":["failing"]`, `"on":["recovered"]`, 1))
	const none = "this installation sends no mail: EVERPOST_SMTP_URL is not set"
	b.refused(t, "admin", http.MethodPut, channelPath, strings.Replace(shown, "ops@example.com", "new@example.com", 1), "channels[0].kind", none)
	b.refused(t, "admin", http.MethodPut, channelPath, strings.Replace(shown, "ops@example.com", "dev@example.com", 1), "channels[0].kind", none)
	b.ok(t, http.StatusOK, "admin", http.MethodPut, channelPath, `{"channels":[{"kind":"email","target":"Ops@example.com","on":["failing"]}]}`)
}

// Each mistake is named with its place.
func TestNotificationMistakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	channel := func(fields string) string { return `{"channels":[` + fields + `]}` }
	for body, field := range map[string]string{
		`{}`:                "channels",
		`{"channels":null}`: "channels",
		channel(`{"kind":"pager","target":"x","on":["failing"]}`):                                             "channels[0].kind",
		channel(`{"kind":"email","target":"ops@example.com","on":["failing"]}`):                               "channels[0].kind", // no mail server
		channel(`{"kind":"slack","target":"https://x.example","on":["paused"]}`):                              "channels[0].on[0]",
		channel(`{"kind":"slack","target":"https://x.example","on":["failing","failing"]}`):                   "channels[0].on[1]",
		channel(`{"kind":"slack","target":"https://x.example","on":[]}`):                                      "channels[0].on",
		channel(`{"kind":"slack","target":"https://x.example"}`):                                              "channels[0].on",
		channel(`{"kind":"slack","target":"[redacted]","on":["failing"]}`):                                    "channels[0].target",
		channel(`{"kind":"slack","target":"ftp://x.example","on":["failing"]}`):                               "channels[0].target",
		channel(`{"kind":"slack","target":"https://x.example","on":["failing"],"endpoint_ids":["x"]}`):        "channels[0].endpoint_ids[0]",
		channel(`{"id":"ep_1","kind":"slack","target":"https://x.example","on":["failing"]}`):                 "channels[0].id",
		channel(`{"kind":"slack","target":"https://x.example","on":["failing"],"secret":1}`):                  "channels[0].secret",
		channel(strings.Repeat(`{"kind":"slack","target":"https://x.example","on":["failing"]},`, 20) + `{}`): "channels",
		`{"channels":[],"portal_url":"http://app.example"}`:                                                   "portal_url",
		`{"channels":[],"portal_url":"https://user:password@app.example"}`:                                    "portal_url",
		`{"channels":[],"portal_url":"https://app.example/\u202e"}`:                                           "portal_url",
	} {
		r := b.do(t, "admin", http.MethodPut, channelPath, body)
		require.Equal(t, http.StatusBadRequest, r.StatusCode, body)
		require.Contains(t, r.text, `"field":"`+field+`"`, body)
	}
	two := b.do(t, "admin", http.MethodPut, channelPath, channel(`{"kind":"slack","target":"https://10.0.0.1:22/","on":["failing"]}`))
	require.Contains(t, two.text, `{"field":"channels[0].target","message":"the address is not public"},`+
		`{"field":"channels[0].target","message":"port 22 is not allowed"}`, "each of its own")
	mails := setup(t, func(c *Config) { c.SendsMail = true })
	for _, address := range []string{
		"", "x", "Ops <ops@example.com>", "ops@example.com\\r\\nBcc: x@example.com", `\"a b\"@example.com`, "ö@example.com",
		"a@example.com,b@example.com", strings.Repeat("a", 250) + "@example.com",
	} {
		r := mails.do(t, "admin", http.MethodPut, channelPath, channel(`{"kind":"email","target":"`+address+`","on":["failing"]}`))
		require.Equal(t, http.StatusBadRequest, r.StatusCode, address)
		require.Contains(t, r.text, `"field":"channels[0].target"`, address)
	}
}
