package activities

import (
	"fmt"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// signed is the header of one request: the endpoint's own fields, then ours.
func signed(m message, target *webhook.Target, body []byte, now time.Time) ([][2]string, error) {
	secrets := make([]signature.Secret, 0, len(target.Secrets))
	for _, text := range target.Secrets {
		secret, err := signature.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("parse a secret of endpoint %s: %w", target.ID, err)
		}
		secrets = append(secrets, secret)
	}
	id := m.event.String()
	header := make([][2]string, 0, len(target.Headers)+7)
	for name, value := range target.Headers {
		header = append(header, [2]string{name, value})
	}
	return append(header,
		[2]string{"content-type", "application/json"},
		[2]string{"webhook-id", id},
		[2]string{"webhook-timestamp", strconv.FormatInt(now.Unix(), 10)},
		[2]string{"webhook-signature", signature.Sign(id, now, body, secrets...)},
		[2]string{"everpost-attempt", strconv.Itoa(m.number)},
		[2]string{"everpost-event-type", m.eventType},
		[2]string{"everpost-delivery-id", m.delivery.String()},
	), nil
}

// shown is the header as the record keeps it: the endpoint's own fields may hold
// credentials, so of those only the names.
func shown(header [][2]string, target *webhook.Target) map[string]string {
	kept := make(map[string]string, len(header))
	for i, field := range header {
		if i < len(target.Headers) {
			kept[field[0]] = "[redacted]"
		} else {
			kept[field[0]] = field[1]
		}
	}
	return kept
}
