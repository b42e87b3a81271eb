package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// Body is the body of the request that tells a chat of something. portalURL is a page of the operator's; "" for none. In each kind, a tenant's
// text stays text: it formats nothing, mentions nobody and links to nothing.
func Body(kind webhook.ChannelKind, n *webhook.Notification, portalURL string) ([]byte, error) {
	var body any
	switch kind {
	case webhook.ChannelSlack:
		body = slack(n, portalURL)
	case webhook.ChannelDiscord:
		body = discord(n, portalURL)
	case webhook.ChannelTeams:
		body = teams(n, portalURL)
	case webhook.ChannelWebhook:
		body = plain(n, portalURL)
	case webhook.ChannelEmail:
		return nil, fmt.Errorf("%s is not a chat", kind)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("encode a notification for %s: %w", kind, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// text is a notification as lines, each escaped.
func text(n *webhook.Notification, portalURL string, escape func(string) string) string {
	lines := []string{title(n.Notice), escape(oneLine(n.Summary, maxSummary))}
	for _, fact := range facts(n) {
		lines = append(lines, fact.name+": "+escape(fact.text))
	}
	if portalURL != "" {
		lines = append(lines, portalURL)
	}
	return strings.Join(lines, "\n")
}

// slackMessage is a message to an incoming webhook. Without mrkdwn nothing is formatted, and & < > are the only characters with a meaning:
// https://docs.slack.dev/messaging/formatting-message-text.
type slackMessage struct {
	Text        string `json:"text"`
	Mrkdwn      bool   `json:"mrkdwn"`
	LinkNames   bool   `json:"link_names"`
	UnfurlLinks bool   `json:"unfurl_links"`
	UnfurlMedia bool   `json:"unfurl_media"`
}

func slack(n *webhook.Notification, portalURL string) slackMessage {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	if portalURL != "" {
		portalURL = "<" + escape(strings.ReplaceAll(portalURL, "|", "%7C")) + ">"
	}
	return slackMessage{Text: text(n, portalURL, escape)}
}

// discordMessage is a message to a webhook. Nobody is mentioned, and no link has a preview:
// https://docs.discord.com/developers/resources/webhook#execute-webhook.
type discordMessage struct {
	Content         string          `json:"content"`
	AllowedMentions discordMentions `json:"allowed_mentions"`
	Flags           int             `json:"flags"`
}

type discordMentions struct {
	Parse []string `json:"parse"`
}

const (
	suppressEmbeds  = 1 << 2 // a flag of a message
	maxDiscordRunes = 2000
)

func discord(n *webhook.Notification, portalURL string) discordMessage {
	content := []rune(text(n, portalURL, escapeMarkdown))
	if len(content) > maxDiscordRunes {
		content = append(content[:maxDiscordRunes-1], '…')
	}
	return discordMessage{Content: string(content), AllowedMentions: discordMentions{Parse: []string{}}, Flags: suppressEmbeds}
}

// escapeMarkdown puts a backslash before ASCII punctuation with a meaning in Markdown, as CommonMark (section 2.4) allows. The colon of a scheme is
// among it, so that nothing becomes a link.
func escapeMarkdown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_{}[]()<>#+-!|~@:&^=$\"'", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// The message to a workflow of Teams: an Adaptive Card. The text of a TextRun is not Markdown, that of a TextBlock is, so that holds none of a
// tenant's: https://adaptivecards.io/explorer/TextRun.html.
type (
	teamsMessage struct {
		Type        string            `json:"type"`
		Attachments []teamsAttachment `json:"attachments"`
	}
	teamsAttachment struct {
		ContentType string    `json:"contentType"` //nolint:tagliatelle // Teams' own name
		Content     teamsCard `json:"content"`
	}
	teamsCard struct {
		Schema  string        `json:"$schema"`
		Type    string        `json:"type"`
		Version string        `json:"version"`
		Body    []any         `json:"body"`
		Actions []teamsAction `json:"actions,omitempty"`
	}
	teamsTitle struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Weight string `json:"weight"`
		Wrap   bool   `json:"wrap"`
	}
	teamsText struct {
		Type    string     `json:"type"`
		Inlines []teamsRun `json:"inlines"`
	}
	teamsRun struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	teamsAction struct {
		Type  string `json:"type"`
		Title string `json:"title"`
		URL   string `json:"url"`
	}
)

func teams(n *webhook.Notification, portalURL string) teamsMessage {
	run := func(text string) teamsText { return teamsText{"RichTextBlock", []teamsRun{{"TextRun", text}}} }
	card := teamsCard{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		Body: []any{teamsTitle{"TextBlock", title(n.Notice), "Bolder", true}, run(oneLine(n.Summary, maxSummary))},
	}
	for _, fact := range facts(n) {
		card.Body = append(card.Body, run(fact.name+": "+fact.text))
	}
	if portalURL != "" {
		card.Actions = []teamsAction{{"Action.OpenUrl", "Open", portalURL}}
	}
	return teamsMessage{"message", []teamsAttachment{{"application/vnd.microsoft.card.adaptive", card}}}
}

// plainMessage is the body for a program. docs/notifications.md describes it.
type plainMessage struct {
	Type      string         `json:"type"`
	Notice    webhook.Notice `json:"notice"`
	TenantID  *string        `json:"tenant_id"`
	Endpoint  *plainEndpoint `json:"endpoint"`
	At        string         `json:"at"`
	Title     string         `json:"title"`
	Summary   string         `json:"summary"`
	PortalURL *string        `json:"portal_url"`
}

type plainEndpoint struct {
	ID          webhook.EndpointID `json:"id"`
	URL         string             `json:"url"`
	Description string             `json:"description"`
}

func plain(n *webhook.Notification, portalURL string) plainMessage {
	m := plainMessage{
		Type: webhook.NotificationType, Notice: n.Notice, At: n.At.UTC().Format("2006-01-02T15:04:05.000000Z"), Title: title(n.Notice), Summary: n.Summary,
	}
	if n.TenantID != "" {
		m.TenantID = &n.TenantID
	}
	if !n.Endpoint.IsZero() {
		m.Endpoint = &plainEndpoint{n.Endpoint, n.URL, n.About}
	}
	if portalURL != "" {
		m.PortalURL = &portalURL
	}
	return m
}
