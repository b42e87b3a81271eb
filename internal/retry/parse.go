package retry

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// longestPolicy limits the text of a policy in bytes; the longest useful one has about 3 KiB.
const longestPolicy = 64 << 10

// ParsePolicy parses a policy from JSON: a preset's name as a string; an object with settings,
// in which an absent or null setting has the value of the preset named by "preset", or of
// Default; or null for Default. Durations are strings for time.ParseDuration ("30s", "72h").
//
// Values are checked against the bounds of Validate. A setting that the strategy or the jitter
// in force does not use is dropped if the object itself names that strategy or jitter, and
// refused otherwise: {"schedule": [...]} alone would be a schedule that is never used. A given
// list of statuses replaces the preset's, and its statuses are removed from the preset's other
// list. Preset is kept if it was given, or if nothing differs from Default.
//
// The error is FieldErrors and names every invalid setting, including unknown and duplicate
// ones. The returned policy is valid and in the form that MarshalJSON encodes.
func ParsePolicy(raw []byte) (Policy, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > longestPolicy:
		return Policy{}, FieldErrors{{Message: "is too long"}}
	case !utf8.Valid(raw) || !json.Valid(raw):
		return Policy{}, FieldErrors{{Message: "is not valid JSON"}}
	}

	switch raw[0] {
	case 'n':
		return Default(), nil
	case '"':
		return parsePresetName(raw)
	case '{':
		return parseObject(raw)
	default:
		return Policy{}, FieldErrors{{Message: "must be a preset's name or an object"}}
	}
}

// ParseSetting parses an operator's setting: a preset's name without quotes, or what
// ParsePolicy parses. The error is FieldErrors.
func ParseSetting(text string) (Policy, error) {
	text = strings.TrimSpace(text)
	if text != "" && strings.ContainsAny(text[:1], `{"[`) {
		return ParsePolicy([]byte(text))
	}
	policy, found := Lookup(text)
	if !found {
		return Policy{}, FieldErrors{{Message: noPreset(text)}}
	}

	return policy, nil
}

func parsePresetName(raw []byte) (Policy, error) {
	var reading document
	reading.readPreset("", raw)
	if err := reading.bad.orNil(); err != nil {
		return Policy{}, err
	}

	return reading.start, nil
}

func parseObject(raw []byte) (Policy, error) {
	reading := document{given: map[string]bool{}, start: Default()}
	reading.readFields(raw)
	policy := reading.complete()
	reading.validate(policy)
	if err := reading.bad.orNil(); err != nil {
		return Policy{}, err
	}

	return policy, nil
}

// document is the state of parsing an object.
type document struct {
	given map[string]bool // fields that are present and not null
	start Policy          // the preset that supplies absent fields
	read  Policy          // the values of present fields
	bad   FieldErrors
}

// readFields reads the members of an object that is valid JSON. encoding/json would accept
// duplicate keys, and keys in any case.
func (d *document) readFields(raw []byte) {
	seen := map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	_, err := decoder.Token()
	for err == nil && decoder.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = decoder.Token(); err != nil {
			break
		}
		if err = decoder.Decode(&value); err != nil {
			break
		}
		field, _ := key.(string)
		if seen[field] {
			d.bad.addOnce(clip(field), "is given more than once")
			continue
		}
		seen[field] = true
		d.readField(field, value)
	}
	if err != nil {
		d.bad.add("", "is not valid JSON")
	}
}

func (d *document) readField(field string, value json.RawMessage) {
	read := d.reader(field)
	switch {
	case field == "ambiguous_attempts":
		d.bad.add(field, `was replaced by ambiguous_delays, the pauses after consecutive ambiguous outcomes, such as ["1m", "15m", "2h"]`)
	case read == nil && field == "":
		d.bad.add("", "has a setting without a name")
	case read == nil:
		d.bad.add(clip(field), "is not a setting of a retry policy")
	case string(value) == "null":
	default:
		d.given[field] = true
		read(field, value)
	}
}

// reader returns the function that parses a field, or nil for an unknown field.
func (d *document) reader(field string) func(field string, value json.RawMessage) {
	switch field {
	case "preset":
		return d.readPreset
	case "strategy":
		return func(field string, value json.RawMessage) { readName(d, field, value, &d.read.Strategy, strategies()) }
	case "base":
		return d.duration(&d.read.Base)
	case "factor":
		return d.number(&d.read.Factor)
	case "cap":
		return d.duration(&d.read.Cap)
	case "schedule":
		return d.durations(&d.read.Schedule, MostSteps)
	case "jitter":
		return func(field string, value json.RawMessage) { readName(d, field, value, &d.read.Jitter, jitters()) }
	case "jitter_ratio":
		return d.number(&d.read.JitterRatio)
	case "min_delay":
		return d.duration(&d.read.MinDelay)
	case "max_attempts":
		return d.count(&d.read.MaxAttempts)
	case "ambiguous_delays":
		return d.durations(&d.read.AmbiguousDelays, MostAmbiguous)
	case "give_up_after":
		return d.duration(&d.read.GiveUpAfter)
	case "max_retry_after":
		return d.duration(&d.read.MaxRetryAfter)
	case "retry_statuses":
		return d.statuses(&d.read.RetryStatuses)
	case "permanent_statuses":
		return d.statuses(&d.read.PermanentStatuses)
	default:
		return nil
	}
}

func (d *document) readPreset(field string, value json.RawMessage) {
	var name string
	if json.Unmarshal(value, &name) != nil {
		d.bad.add(field, "must be a preset's name")
		return
	}
	preset, found := Lookup(name)
	if !found {
		d.bad.add(field, noPreset(name))
		return
	}
	d.start = preset
}

// noPreset is the error text for an unknown preset name; it lists the presets.
func noPreset(name string) string {
	var text strings.Builder
	text.WriteString("there is no preset " + strconv.Quote(clip(name)) + "; there are ")
	presets := Presets()
	for i, preset := range presets {
		switch i {
		case 0:
		case len(presets) - 1:
			text.WriteString(" and ")
		default:
			text.WriteString(", ")
		}
		text.WriteString(preset.Name)
	}

	return text.String()
}

// readName parses an enum by its String.
func readName[T interface {
	comparable
	String() string
}](d *document, field string, value json.RawMessage, into *T, values []T) {
	var name string
	if json.Unmarshal(value, &name) != nil || parseEnum(into, []byte(name), field, values...) != nil {
		d.bad.add(field, "must be "+enumNames(values))
	}
}

func (d *document) duration(into *time.Duration) func(string, json.RawMessage) {
	return func(field string, value json.RawMessage) {
		var text string
		parsed, err := time.Duration(0), json.Unmarshal(value, &text)
		if err == nil {
			parsed, err = time.ParseDuration(text)
		}
		if err != nil {
			d.bad.add(field, `must be a duration such as "30s" or "72h"`)
			return
		}
		*into = parsed
	}
}

func (d *document) number(into *float64) func(string, json.RawMessage) {
	return func(field string, value json.RawMessage) {
		if json.Unmarshal(value, into) != nil {
			d.bad.add(field, "must be a number")
		}
	}
}

func (d *document) count(into *int) func(string, json.RawMessage) {
	return func(field string, value json.RawMessage) {
		if json.Unmarshal(value, into) != nil {
			d.bad.add(field, "must be a whole number")
		}
	}
}

func (d *document) durations(into *[]time.Duration, most int) func(string, json.RawMessage) {
	return func(field string, value json.RawMessage) {
		d.list(field, value, "durations", most, func(path string, element json.RawMessage) {
			var one time.Duration
			d.duration(&one)(path, element)
			*into = append(*into, one)
		})
	}
}

func (d *document) statuses(into *[]int) func(string, json.RawMessage) {
	return func(field string, value json.RawMessage) {
		d.list(field, value, "status codes", MostStatuses, func(path string, element json.RawMessage) {
			var status int
			// Unmarshal ignores null and would leave status unchanged.
			if string(element) == "null" || json.Unmarshal(element, &status) != nil {
				d.bad.add(path, "must be a status code")
			}
			*into = append(*into, status)
		})
	}
}

// list parses an array element by element. It refuses more than most elements.
func (d *document) list(
	field string, value json.RawMessage, kind string, most int, read func(path string, element json.RawMessage),
) {
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) != nil {
		d.bad.add(field, "must be a list of "+kind)
		return
	}
	if len(elements) > most {
		d.bad.add(field, "must have at most "+strconv.Itoa(most)+" entries")
		return
	}
	for i, element := range elements {
		read(indexed(field, i), element)
	}
}
