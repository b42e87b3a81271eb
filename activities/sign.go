package activities

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// message identifies what a request carries.
type message struct {
	event     webhook.EventID
	delivery  webhook.DeliveryID
	eventType string
	created   time.Time         // of the event
	number    int               // of the attempt; 0 for a test request
	headers   map[string]string // the event's own; nil for none
	place     webhook.Sequence  // zero if the delivery is not numbered
	run       int               // of the delivery; 0 for a test request
}

// signed returns the header of one request: first the ownCount fields of the endpoint's own, then
// those of the event, then those of Everpost. Of a name that several have, the endpoint's, which may be a credential,
// is before the event's, and those that Everpost signs are before both. trace is that of the request's span.
func signed(m message, target *webhook.Target, body []byte, now time.Time, trace webhook.Trace) (header [][2]string, ownCount int, err error) {
	secrets := make([]signature.Secret, 0, len(target.Secrets))
	for _, text := range target.Secrets {
		secret, err := signature.ParseSecret(text)
		if err != nil {
			return nil, 0, fmt.Errorf("parse a secret of endpoint %s: %w", target.ID, err)
		}
		secrets = append(secrets, secret)
	}
	fields, err := signatureFields(target, m.event.String(), now, body, secrets)
	if err != nil {
		return nil, 0, err
	}
	if target.TraceContext && trace != "" {
		fields = append(fields, [2]string{"traceparent", string(trace)})
	}
	header = make([][2]string, 0, len(target.Headers)+len(m.headers)+12)
	for _, name := range slices.Sorted(maps.Keys(target.Headers)) {
		if !has(fields, name) {
			header = append(header, [2]string{name, target.Headers[name]})
		}
	}
	ownCount = len(header)
	header = appendEvent(header, m.headers, target, fields)
	for _, field := range [][2]string{{"Accept", "*/*"}, {"Content-Type", "application/json"}} {
		if !has(header, field[0]) {
			header = append(header, field)
		}
	}
	header = append(header, fields...)
	header = append(header,
		[2]string{"everpost-attempt", strconv.Itoa(m.number)},
		[2]string{"everpost-event-type", m.eventType},
		[2]string{"everpost-delivery-id", m.delivery.String()},
	)
	return appendPlace(header, m), ownCount, nil
}

// appendPlace appends the place of a numbered delivery in its line. A replay keeps the number, and says so.
func appendPlace(header [][2]string, m message) [][2]string {
	if m.place.IsZero() {
		return header
	}
	if m.place.Key != "" {
		header = append(header, [2]string{"everpost-ordering-key", webhook.OrderingKeyHeader(m.place.Key)})
	}
	header = append(header,
		[2]string{"everpost-sequence", strconv.FormatInt(m.place.Number, 10)},
		[2]string{"everpost-line", strconv.FormatInt(m.place.Line, 10)},
	)
	if m.run > 1 {
		header = append(header, [2]string{"everpost-replay", strconv.Itoa(m.run)})
	}
	return header
}

// appendEvent appends the event's own fields to those of the endpoint, without those that the endpoint, its auth or Everpost sets.
func appendEvent(header [][2]string, own map[string]string, target *webhook.Target, fields [][2]string) [][2]string {
	if len(own) == 0 {
		return header
	}
	set := len(header)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		credential := target.Auth.Kind != webhook.AuthNone && strings.EqualFold(name, "Authorization")
		if !credential && !has(header[:set], name) && !has(fields, name) {
			header = append(header, [2]string{name, own[name]})
		}
	}
	return header
}

// signatureFields returns the fields by which a receiver verifies a request and recognises a
// duplicate. Under v1 and v1a every secret signs, of either kind: while an endpoint changes from
// one scheme to the other, receivers find the signature that they know. The header of the hex
// scheme has one signature, of the newest HMAC secret.
func signatureFields(target *webhook.Target, id string, now time.Time, body []byte, secrets []signature.Secret) ([][2]string, error) {
	if target.Signature != webhook.SignatureHex {
		return [][2]string{
			{signature.HeaderID, id},
			{signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10)},
			{signature.HeaderSignature, signature.Sign(id, now, body, secrets...)},
		}, nil
	}
	for _, secret := range secrets {
		if secret.Kind() == signature.HMAC {
			text, err := signature.SignHex(body, secret)
			return [][2]string{{signature.HeaderHexIdempotency, id}, {signature.HeaderHexSignature, text}}, err
		}
	}
	return nil, fmt.Errorf("sign for endpoint %s: %w", target.ID, signature.ErrNoHMACSecret)
}

// has reports whether the fields include one, in any case: an endpoint may have set it itself
// before its scheme needed it.
func has(fields [][2]string, name string) bool {
	for _, field := range fields {
		if strings.EqualFold(field[0], name) {
			return true
		}
	}
	return false
}

// maxRecordedValue bounds a header's value in the record of an attempt, in bytes: an event's may be long, and each attempt would store it again.
const maxRecordedValue = 256

// recordedHeader is the header as it is recorded. The values of the endpoint's own fields, and of
// the field made of its auth, may be credentials: only their names are recorded. Of a long value, which only an event
// has, the beginning is recorded.
func recordedHeader(header [][2]string, ownCount int, ofEvent map[string]string, auth webhook.Auth) map[string]string {
	kept := make(map[string]string, len(header)+1)
	if auth.Kind != webhook.AuthNone {
		kept["Authorization"] = webhook.Redacted
	}
	for i, field := range header {
		switch {
		case i < ownCount:
			kept[field[0]] = webhook.Redacted
		case len(field[1]) > maxRecordedValue && ofEvent[field[0]] == field[1]:
			kept[field[0]] = field[1][:maxRecordedValue] + "…"
		default:
			kept[field[0]] = field[1]
		}
	}
	return kept
}
