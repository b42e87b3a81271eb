package cli

import (
	"encoding/json"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// endpointFields are the flags that creating and updating an endpoint share. Fields without
// a flag go into Data, and so does null, which resets a field to its default.
type endpointFields struct {
	endpointAuth `embed:""`

	EventTypes  []string          `help:"Event types: exact types, prefixes as order.* or invoice/*, or *, separated by commas or repeated." name:"event-type" placeholder:"TYPE"` //nolint:lll // a struct tag cannot be wrapped
	Filter      source            `help:"Which of the events of these types: a JSON object, @file, - for standard input, or null for all." name:"filter" placeholder:"JSON"`       //nolint:lll // a struct tag cannot be wrapped
	Ordering    *string           `help:"What its events are numbered by: none, or number, for a number of each event in its line." placeholder:"BY"`
	Description *string           `help:"A note for people." placeholder:"TEXT"`
	Header      []string          `help:"A request header, as 'Name: value'; may be repeated. Replaces all headers." placeholder:"HEADER" sep:"none"`
	Timeout     *string           `help:"Timeout of a whole request: 1s to 30s, or auto, which adapts to the receiver's latency." placeholder:"DURATION"`
	MaxInFlight *int              `help:"Maximum of concurrent requests." placeholder:"N"`
	Rate        *float64          `help:"Maximum of requests per second." name:"rate-limit-per-second" placeholder:"N"`
	RetryPolicy *string           `help:"A preset's name, JSON, or null for the tenant's or the installation's." placeholder:"POLICY"`
	Signature   *string           `help:"How requests are signed: v1, v1a or hex." placeholder:"SCHEME"`
	Format      *string           `help:"What the body of a request is: raw, the payload as it was posted, or envelope, with type and timestamp around it." name:"payload-format" placeholder:"FORMAT"` //nolint:lll // a struct tag cannot be wrapped
	Traces      *bool             `help:"Send a traceparent header, so that the receiver's spans are in the event's trace." name:"trace-context" negatable:""`
	Accepted    []int             `help:"A redirect that counts as delivered: 301, 302, 303, 307 or 308; may be repeated. Replaces all." name:"success-status" placeholder:"STATUS"` //nolint:lll // a struct tag cannot be wrapped
	AutoReplay  *bool             `help:"Replay the dead letters of an outage when the endpoint has recovered." negatable:""`
	Metadata    map[string]string `help:"Metadata, as name=value; may be repeated. Replaces all metadata." mapsep:"none" placeholder:"NAME=VALUE"`
	Data        source            `help:"Any settings as the API takes them: a JSON object, @file, or - for standard input. Flags override its fields." placeholder:"JSON"` //nolint:lll // a struct tag cannot be wrapped
}

// body returns the settings in the API's format: Data, overridden by the flags.
func (f *endpointFields) body(p Process, address *string) ([]byte, error) {
	fields, err := f.Data.object(p, "--data")
	if err != nil {
		return nil, err
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
	set(fields, "payload_format", f.Format)
	set(fields, "trace_context", f.Traces)
	set(fields, "timeout", f.Timeout)
	if f.Accepted != nil {
		fields["success_statuses"] = marshal(f.Accepted)
	}
	if f.EventTypes != nil {
		fields["event_types"] = marshal(f.EventTypes)
	}
	if f.Filter != "" {
		text, err := f.Filter.read(p, "--filter")
		if err != nil {
			return nil, err
		}
		fields["filter"] = text
	}
	if f.Ordering != nil {
		fields["ordering"] = marshal(client.Ordering{By: *f.Ordering})
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
	if err := setPolicy(fields, f.RetryPolicy); err != nil {
		return nil, err
	}
	return marshal(fields), nil
}

// set sets a field if it was given.
func set[T any](fields map[string]json.RawMessage, name string, value *T) {
	if value != nil {
		fields[name] = marshal(value)
	}
}

// headersOf parses headers in the format of curl's -H. Errors contain none of their values,
// which may be secret.
func headersOf(lines []string) (map[string]string, error) {
	headers := make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usage("--header: must be of the form 'Name: value'")
		}
		if _, twice := headers[name]; twice {
			return nil, usage("--header: " + printable.Text(name) + " is given more than once")
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// setPolicy sets a retry policy if it was given: a preset's name, or an object.
func setPolicy(fields map[string]json.RawMessage, policy *string) error {
	if policy == nil {
		return nil
	}
	text := strings.TrimSpace(*policy)
	if !strings.HasPrefix(text, "{") && text != "null" {
		fields["retry_policy"] = marshal(text)
		return nil
	}
	if err := checkJSON([]byte(text)); err != nil {
		return usagef("--retry-policy: %w", err)
	}
	fields["retry_policy"] = json.RawMessage(text)
	return nil
}
