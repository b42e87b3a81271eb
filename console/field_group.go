package console

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/retry"
)

// fieldGroup is an object of the API as fields of a form, which have the names of their paths: "circuit_breaker.window". The API takes it as a
// whole, so it is sent as soon as one of the fields was changed.
type fieldGroup struct {
	name   string
	fields []groupField
	switched
}

// switched says how a group is switched off: if its first field has that value, the group is sent as instead.
type switched struct {
	off     string
	instead any
}

// groupField is a field of a group, and how its text is read.
type groupField struct {
	name string
	read func(text string) any
}

const (
	none      = "none"      // an empty list, or no credentials
	inherited = "inherited" // no retry policy of its own
)

func asText(text string) any { return text }

// asList reads a list that is separated by commas, spaces or lines; "none" is an empty one.
func asList(entry func(string) any) func(string) any {
	return func(text string) any {
		list := []any{}
		if text == none {
			return list
		}
		for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' || r == ' ' }) {
			list = append(list, entry(one))
		}
		return list
	}
}

// breakerGroup, disableGroup, policyGroup and authGroup are the groups of the forms.
func breakerGroup() fieldGroup {
	return fieldGroup{name: "circuit_breaker", fields: []groupField{
		{"enabled", func(text string) any { return text == "yes" }},
		{"window", asText}, {"min_requests", number}, {"failure_ratio", number}, {"cooldown", asText},
	}}
}

func disableGroup() fieldGroup {
	return fieldGroup{
		name: "auto_disable", switched: switched{"no", false}, fields: []groupField{{"enabled", nil}, {"exhausted_24h", number}, {"permanent_streak", number}},
	}
}

func policyGroup() fieldGroup {
	return fieldGroup{name: "retry_policy", fields: []groupField{
		{"preset", asText},
		{"max_attempts", number}, {"give_up_after", asText},
		{"strategy", asText}, {"base", asText}, {"factor", number}, {"cap", asText}, {"schedule", asList(asText)},
		{"jitter", asText}, {"jitter_ratio", number}, {"min_delay", asText}, {"max_retry_after", asText},
		{"ambiguous_delays", asList(asText)}, {"retry_statuses", asList(number)}, {"permanent_statuses", asList(number)},
	}, switched: switched{inherited, nil}}
}

func authGroup() fieldGroup {
	return fieldGroup{name: "auth", fields: []groupField{
		{"type", asText}, {"username", asText}, {"password", asText}, {"token", asText},
		{"token_url", asText}, {"client_id", asText}, {"client_secret", asText}, {"scopes", asList(asText)}, {"audience", asText},
	}, switched: switched{none, nil}}
}

// paths are the names of the group's fields in a form.
func (g fieldGroup) paths() []string {
	paths := make([]string, 0, len(g.fields))
	for _, f := range g.fields {
		paths = append(paths, g.name+"."+f.name)
	}
	return paths
}

// addTo adds the group to the body for the API, if a field was changed. What is empty gets its default, or that of the preset.
func (g fieldGroup) addTo(body map[string]any, typed url.Values, before map[string]string) {
	object, changed, on := map[string]any{}, false, true
	for i, f := range g.fields {
		path := g.name + "." + f.name
		text := strings.TrimSpace(strings.ReplaceAll(typed.Get(path), "\r\n", "\n"))
		changed = changed || typed.Has(path) && text != before[path]
		switch {
		case i == 0 && text == g.off && g.off != "":
			on = false
		case text != "" && f.read != nil:
			object[f.name] = f.read(text)
		}
	}
	switch {
	case !changed:
	case on:
		body[g.name] = object
	default:
		body[g.name] = g.instead
	}
}

// breakerValues, disableValues, policyValues and authValues are what the fields of the groups hold.
func breakerValues(values map[string]string, b client.CircuitBreaker) {
	values["circuit_breaker.enabled"], values["circuit_breaker.window"], values["circuit_breaker.cooldown"] = yesNo(b.Enabled), b.Window, b.Cooldown
	values["circuit_breaker.min_requests"], values["circuit_breaker.failure_ratio"] = strconv.Itoa(b.MinRequests), floatText(&b.FailureRatio)
}

func disableValues(values map[string]string, d client.AutoDisable) {
	values["auto_disable.enabled"] = yesNo(d.Enabled)
	if d.Enabled {
		values["auto_disable.exhausted_24h"], values["auto_disable.permanent_streak"] = strconv.Itoa(d.Exhausted24h), strconv.Itoa(d.PermanentStreak)
	}
}

// policyValues shows a policy as its preset and what differs from that; nil: it is inherited.
func policyValues(values map[string]string, policy *client.RetryPolicy) {
	values["retry_policy.preset"] = inherited
	if policy == nil {
		return
	}
	name := cmp.Or(policy.Preset, retry.Default().Preset)
	preset, _ := retry.Lookup(name)
	own, of := textsOf(jsonOf(policy)), textsOf(jsonOf(preset))
	values["retry_policy.preset"] = name
	for field, text := range own {
		if field != "preset" && text != of[field] {
			values["retry_policy."+field] = text
		}
	}
}

// textsOf are the fields of a JSON object as a form shows them.
func textsOf(object string) map[string]string {
	var fields map[string]any
	texts := map[string]string{}
	if json.Unmarshal([]byte(object), &fields) != nil {
		return texts
	}
	for name, value := range fields {
		switch v := value.(type) {
		case string:
			texts[name] = v
		case float64:
			texts[name] = floatText(&v)
		case []any:
			list := make([]string, 0, len(v))
			for _, one := range v {
				text, isText := one.(string)
				if f, isNumber := one.(float64); isNumber && !isText {
					text = floatText(&f)
				}
				list = append(list, text)
			}
			texts[name] = cmp.Or(strings.Join(list, ", "), none)
		}
	}
	return texts
}

// authValues shows what is not secret. Secrets are typed anew with every change, because the API takes credentials as a whole.
func authValues(values map[string]string, a *client.Auth) {
	values["auth.type"] = none
	if a == nil {
		return
	}
	values["auth.type"], values["auth.username"], values["auth.token_url"] = a.Type, a.Username, a.TokenURL
	values["auth.client_id"], values["auth.scopes"], values["auth.audience"] = a.ClientID, strings.Join(a.Scopes, ", "), a.Audience
}

// policyNames are the choices of a retry policy.
func policyNames() []string {
	names := []string{inherited}
	for _, preset := range retry.Presets() {
		names = append(names, preset.Name)
	}
	return slices.Compact(names)
}
