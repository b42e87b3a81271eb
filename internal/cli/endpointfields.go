package cli

import (
	"encoding/json"
	"errors"
	"strings"
)

// endpointFields are the settings of an endpoint that creating and changing it share.
// What has no flag of its own goes into Data, and so does null, which sets a field back
// to its default.
type endpointFields struct {
	endpointAuth `embed:""`

	EventTypes  []string          `help:"What to send: exact types, prefix.* or *, separated by commas or repeated." name:"event-type" placeholder:"TYPE"`
	Description *string           `help:"A note for people." placeholder:"TEXT"`
	Header      []string          `help:"A header to send along, as 'Name: value'; may be repeated. All are replaced." placeholder:"HEADER" sep:"none"`
	Timeout     *string           `help:"Of one request as a whole: 1s to 30s, or auto, which follows the receiver's answers." placeholder:"DURATION"`
	MaxInFlight *int              `help:"Requests at a time." placeholder:"N"`
	Rate        *float64          `help:"Requests in a second." name:"rate-limit-per-second" placeholder:"N"`
	RetryPolicy *string           `help:"A preset's name, or JSON." placeholder:"POLICY"`
	Signature   *string           `help:"How requests are signed: v1, v1a or hex." placeholder:"SCHEME"`
	AutoReplay  *bool             `help:"Replay the dead letters of an outage when the endpoint is back." negatable:""`
	Metadata    map[string]string `help:"A note of your own, as name=value; may be repeated. All are replaced." mapsep:"none" placeholder:"NAME=VALUE"`
	Data        source            `help:"Any settings as the API takes them: a JSON object, @file, or - for standard input. A flag goes before its field here." placeholder:"JSON"` //nolint:lll // a struct tag cannot be wrapped
}

// body is the settings as the API reads them: Data, and the flags over it.
func (f *endpointFields) body(p Process, address *string) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if f.Data != "" {
		text, err := f.Data.read(p, "--data")
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(text, &fields) != nil || fields == nil {
			return nil, errors.New("--data: must be a JSON object")
		}
	}
	if err := f.authInto(fields, p); err != nil {
		return nil, err
	}
	set(fields, "url", address)
	set(fields, "description", f.Description)
	set(fields, "max_in_flight", f.MaxInFlight)
	set(fields, "rate_limit_per_second", f.Rate)
	set(fields, "auto_replay", f.AutoReplay)
	set(fields, "signature", f.Signature)
	set(fields, "timeout", f.Timeout)
	if f.EventTypes != nil {
		fields["event_types"] = marshal(f.EventTypes)
	}
	if f.Metadata != nil {
		fields["metadata"] = marshal(f.Metadata)
	}
	if f.Header != nil {
		headers, err := headersOf(f.Header)
		if err != nil {
			return nil, err
		}
		fields["headers"] = marshal(headers)
	}
	if f.RetryPolicy != nil {
		fields["retry_policy"] = marshal(*f.RetryPolicy)
		if text := strings.TrimSpace(*f.RetryPolicy); strings.HasPrefix(text, "{") {
			if err := checkJSON([]byte(text)); err != nil {
				return nil, errors.New("--retry-policy: " + err.Error())
			}
			fields["retry_policy"] = json.RawMessage(text)
		}
	}
	return marshal(fields), nil
}

// set sets a field that was given.
func set[T any](fields map[string]json.RawMessage, name string, value *T) {
	if value != nil {
		fields[name] = marshal(value)
	}
}

// headersOf reads headers as curl's -H takes them. The error names none of their
// values, which may be secret.
func headersOf(lines []string) (map[string]string, error) {
	headers := make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errors.New("--header: must be of the form 'Name: value'")
		}
		if _, twice := headers[name]; twice {
			return nil, errors.New("--header: " + plain(name) + " is given more than once")
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}
