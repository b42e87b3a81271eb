package notify

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxAbout   = 200  // characters of an endpoint's description
	maxURL     = 300  // characters of an endpoint's URL
	maxSummary = 1000 // characters of the explanation
)

// title is a notification in a few words. It holds no text of a tenant.
func title(n webhook.Notice) string {
	switch n {
	case webhook.NoticeFailing:
		return "A webhook endpoint is failing"
	case webhook.NoticeDisablingSoon:
		return "A webhook endpoint will be disabled soon"
	case webhook.NoticeDisabled:
		return "A webhook endpoint was disabled"
	case webhook.NoticeRecovered:
		return "A webhook endpoint has recovered"
	case webhook.NoticeDeadLetters:
		return "Webhook deliveries were given up"
	case webhook.NoticeBacklogExpiring:
		return "Held webhook deliveries will be given up"
	}
	return "A webhook endpoint has changed"
}

// line is a fact with its name.
type line struct{ name, text string }

// facts are what a notification is about, one a line. They hold texts of the tenant, each of them in one line.
func facts(n *webhook.Notification) (all []line) {
	add := func(name, text string, limit int) {
		if text = oneLine(text, limit); text != "" {
			all = append(all, line{name, text})
		}
	}
	add("Endpoint", n.URL, maxURL)
	add("Description", n.About, maxAbout)
	if !n.Endpoint.IsZero() {
		add("Id", n.Endpoint.String(), maxURL)
	}
	add("Tenant", n.TenantID, maxURL)
	add("Time", n.At.UTC().Format("2006-01-02 15:04:05 UTC"), maxURL)
	return all
}

// oneLine is a text without line breaks, controls and what changes the direction of writing, cut to a number of characters.
func oneLine(text string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return -1
		}
		return r
	}, text)
	clean = strings.Join(strings.Fields(clean), " ")
	if runes := []rune(clean); len(runes) > limit {
		clean = string(runes[:limit-1]) + "…"
	}
	return clean
}

// host is the host of the endpoint, for the subject of a mail; "" if there is none.
func host(n *webhook.Notification) string {
	u, err := url.Parse(n.URL)
	if err != nil {
		return ""
	}
	return oneLine(u.Hostname(), maxAbout)
}
