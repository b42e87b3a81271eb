package notify_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

// hostile are texts that a tenant chooses, each with what must not be in the text of a message.
func hostile() map[string]map[webhook.ChannelKind][]string {
	return map[string]map[webhook.ChannelKind][]string{
		"<!channel> <@U1> <https://evil.example|sign in>": {
			webhook.ChannelSlack: {"<!", "<@", "<https"}, webhook.ChannelDiscord: {" <@"},
		},
		"@everyone @here [sign in](https://evil.example) **bold** ||x|| `code` # top": {
			webhook.ChannelDiscord: {" @everyone", " @here", "](", " **", " ||", " `", " https://"},
		},
		"&lt;!channel&gt;": {webhook.ChannelSlack: {" &lt;!channel"}},
		"line one\r\nBcc: x@evil.example\n\n# second \u2028third\u202egnp": {
			webhook.ChannelSlack: {"\nBcc", "\r", "\u2028", "\u202e"}, webhook.ChannelDiscord: {"\nBcc", "\n#", "\u202e"},
			webhook.ChannelTeams: {"\n", "\r", "\u2028", "\u202e"},
		},
	}
}

func notification(about string) *webhook.Notification {
	return &webhook.Notification{
		Notice: webhook.NoticeFailing, TenantID: "acme", Endpoint: webhook.NewEndpointID(), URL: "https://example.com/hook", About: about,
		Summary: "The last answer was " + about + ".", At: now(),
	}
}

// textOf is the text of a message for people.
func textOf(t *testing.T, kind webhook.ChannelKind, body []byte) string {
	t.Helper()
	var message struct {
		Text, Content string
		Attachments   []struct {
			Content struct {
				Body []struct {
					Type, Text string
					Inlines    []struct{ Type, Text string }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &message)) //nolint:musttag // names in any case
	switch kind {                                      //nolint:exhaustive // the others are Teams'
	case webhook.ChannelSlack:
		return message.Text
	case webhook.ChannelDiscord:
		return message.Content
	default:
	}
	require.Len(t, message.Attachments, 1)
	all := ""
	for _, block := range message.Attachments[0].Content.Body {
		if block.Type == "TextBlock" {
			require.Equal(t, "A webhook endpoint is failing", block.Text, "a TextBlock is Markdown")
			continue
		}
		require.Equal(t, "RichTextBlock", block.Type)
		for _, run := range block.Inlines {
			require.Equal(t, "TextRun", run.Type)
			all += run.Text + " " //nolint:perfsprint // a few
		}
	}
	return all
}

func TestTextsOfTenantsStayText(t *testing.T) {
	t.Parallel()
	for about, kinds := range hostile() {
		for kind, never := range kinds {
			body, err := notify.Body(kind, notification(about), "")
			require.NoError(t, err)
			text := textOf(t, kind, body)
			for _, wrong := range never {
				require.NotContains(t, text, wrong, "%s: %q", kind, about)
			}
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	n := notification("orders")
	body := func(kind webhook.ChannelKind) string {
		text, err := notify.Body(kind, n, "https://app.example/hooks?a=1&b=2")
		require.NoError(t, err)
		return string(text)
	}
	require.JSONEq(t, `{"text":"A webhook endpoint is failing\nThe last answer was orders.\nEndpoint: https://example.com/hook\nDescription: orders\nId: `+
		n.Endpoint.String()+`\nTenant: acme\nTime: 2026-01-31 09:30:00 UTC\n<https://app.example/hooks?a=1&amp;b=2>",
		"mrkdwn":false,"link_names":false,"unfurl_links":false,"unfurl_media":false}`, body(webhook.ChannelSlack))
	require.Contains(t, body(webhook.ChannelDiscord), `"allowed_mentions":{"parse":[]}`)
	require.Contains(t, body(webhook.ChannelTeams), `"contentType":"application/vnd.microsoft.card.adaptive"`)
	require.Contains(t, body(webhook.ChannelTeams), `{"type":"Action.OpenUrl","title":"Open","url":"https://app.example/hooks?a=1&b=2"}`)
	require.JSONEq(t, `{"type":"everpost.notification","notice":"failing","tenant_id":"acme",
		"endpoint":{"id":"`+n.Endpoint.String()+`","url":"https://example.com/hook","description":"orders"},"at":"2026-01-31T09:30:00.000000Z",
		"title":"A webhook endpoint is failing","summary":"The last answer was orders.","portal_url":"https://app.example/hooks?a=1&b=2"}`,
		body(webhook.ChannelWebhook))
	_, err := notify.Body(webhook.ChannelEmail, n, "")
	require.Error(t, err)

	n.About = strings.Repeat("*", 5000)
	text, err := notify.Body(webhook.ChannelDiscord, n, "")
	require.NoError(t, err)
	require.LessOrEqual(t, len([]rune(textOf(t, webhook.ChannelDiscord, text))), 2000)
}

func TestMails(t *testing.T) {
	t.Parallel()
	links := notify.Links{Name: "Hooks", BaseURL: "https://hooks.example"}
	for about := range hostile() {
		n := notification(about)
		n.URL = "https://evil.example%0d%0aBcc/" + about
		mail, err := links.Notification(n, "https://app.example/hooks", "token")
		require.NoError(t, err)
		require.NotContains(t, mail.Subject, "\n")
		require.NotContains(t, mail.Subject, "\r")
		require.NotContains(t, mail.Text, "\nBcc")
		require.NotContains(t, mail.HTML, "<!channel>")
		require.NotContains(t, mail.HTML, `href="https://evil.example`)
		require.Contains(t, mail.Text, "https://app.example/hooks")
		require.Contains(t, mail.HTML, `href="https://hooks.example/notifications/unsubscribe/token"`)
		require.Equal(t, "https://hooks.example/notifications/unsubscribe/token", mail.UnsubscribeURL)
	}
	mail, err := links.Notification(notification("orders"), "", "token")
	require.NoError(t, err)
	require.Equal(t, "A webhook endpoint is failing: example.com", mail.Subject)

	mail, err = links.Confirmation("token")
	require.NoError(t, err)
	require.Contains(t, mail.Text, "https://hooks.example/notifications/confirm/token")
	require.Empty(t, mail.UnsubscribeURL)
}
