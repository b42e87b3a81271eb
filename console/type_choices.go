package console

import (
	"cmp"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// States of an event type that pages tell apart.
const (
	deprecatedType = "deprecated"
	archivedType   = "archived"
)

const (
	// maxListed is how many rows the API lists at a time.
	maxListed = 250
	// maxCataloguePages bounds the pages of the catalogue. The API cuts a page at 1 MiB, and the largest type takes less than 16 KiB in a list.
	maxCataloguePages = (webhook.MaxCatalogueTypes + 63) / 64
)

// readEventTypes reads the catalogue of event types, by name.
func readEventTypes(p *page) ([]client.ListedEventType, error) {
	var all []client.ListedEventType
	query := url.Values{"limit": {strconv.Itoa(maxListed)}}
	for range maxCataloguePages {
		var found client.Page[client.ListedEventType]
		if err := p.api.get(p.r.Context(), &found, query, apiPath("event-types")); err != nil {
			return nil, err
		}
		all = append(all, found.Data...)
		if found.NextCursor == "" {
			break
		}
		query.Set("cursor", found.NextCursor)
	}
	return all, nil
}

// byGroup orders event types by group, those without one last, and by name.
func byGroup(a, b client.ListedEventType) int {
	first, second := value(a.Group), value(b.Group)
	switch {
	case first == second:
		return cmp.Compare(a.Name, b.Name)
	case first == "":
		return 1
	case second == "":
		return -1
	}
	return cmp.Or(cmp.Compare(strings.ToLower(first), strings.ToLower(second)), cmp.Compare(first, second))
}

// mentions reports whether a type has a text in its name, its group or its description, in either case.
func mentions(t client.ListedEventType, text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	return slices.ContainsFunc([]string{t.Name, value(t.Group), t.Description}, func(in string) bool { return strings.Contains(strings.ToLower(in), text) })
}

// typeChoices are the event types of the catalogue in the form of an endpoint.
type typeChoices struct {
	Groups []typeGroup
	Find   string // what the types that are shown have in common, beside the chosen ones
	More   int    // types that are not shown
}

// Offered reports whether there is anything to choose from, or to look for.
func (c typeChoices) Offered() bool { return len(c.Groups) > 0 || c.Find != "" }

// Many reports whether there are so many that a reader looks for one.
func (c typeChoices) Many() bool {
	n := 0
	for _, g := range c.Groups {
		n += len(g.Types)
	}
	return n > openTypes/2
}

// typeGroup is a group of them.
type typeGroup struct {
	Name   string // "" for those without a group
	Types  []typeChoice
	Chosen int
	Open   bool
}

// typeChoice is an event type that can be chosen.
type typeChoice struct {
	Name                 string
	Checked              bool
	By                   string // the chosen pattern that has it, as order.*; "" if it is checked, or none has
	Description          string // its beginning; "" if there is no room for it
	Deprecated, Archived bool
	ReplacedBy           string

	group string
}

const (
	// maxChoiceBytes bounds the choices of a form: a page has 100 KB. 1,000 types take more: then those are shown that have a text.
	maxChoiceBytes = 64 << 10
	groupMarkup    = 200 // bytes that a group takes beside its name
	choiceMarkup   = 90  // bytes that a type takes beside its texts
	markMarkup     = 80  // bytes that its state takes beside the type to use instead

	shownDescription = 100 // bytes of a description in a form
	openTypes        = 24  // types of a form whose groups are all open
)

func newTypeChoice(t client.ListedEventType, chosen []string) typeChoice {
	first, _, _ := strings.Cut(t.Description, "\n")
	checked, by := slices.Contains(chosen, t.Name), ""
	if i := slices.IndexFunc(chosen, func(filter string) bool { return filter != "*" && webhook.FilterMatches(filter, t.Name) }); i >= 0 && !checked {
		by = chosen[i]
	}
	return typeChoice{
		Name: t.Name, Checked: checked, By: by, Description: clip(visible(first), shownDescription),
		Deprecated: t.State == deprecatedType, Archived: t.State == archivedType, ReplacedBy: value(t.ReplacedBy), group: value(t.Group),
	}
}

// size is how many bytes a choice takes at most, with its group's if that is another than the one before.
func (c typeChoice) size(before string, first bool) int {
	n := choiceMarkup + 2*len(c.Name) + len(html.EscapeString(c.Description))
	if c.By != "" {
		n += markMarkup + len(c.By)
	}
	if c.Deprecated || c.Archived {
		n += markMarkup + len(c.ReplacedBy)
	}
	if first || c.group != before {
		n += groupMarkup + len(html.EscapeString(visible(c.group)))
	}
	return n
}

// chooseTypes are the types of the catalogue to choose from, as far as there is room: the chosen ones, and those that have a text. An archived
// type is among them only if it is chosen. What is chosen and is not in the catalogue, or has no room, is typed; all types alone are neither.
func chooseTypes(all []client.ListedEventType, chosen []string, find string) (c typeChoices, typed []string) {
	c.Find = find
	var choices []typeChoice
	known := map[string]bool{}
	for _, t := range slices.SortedFunc(slices.Values(all), byGroup) {
		known[t.Name] = true
		if one := newTypeChoice(t, chosen); one.Checked || !one.Archived && mentions(t, find) {
			choices = append(choices, one)
		}
	}
	for _, name := range chosen {
		if !known[name] && (name != "*" || len(chosen) > 1) {
			typed = append(typed, name)
		}
	}
	fit(choices)
	room := maxChoiceBytes
	choices = slices.DeleteFunc(choices, func(one typeChoice) bool {
		size := one.size("", true)
		if !one.Checked {
			return false
		} else if size > room {
			typed = append(typed, one.Name)
			return true
		}
		room -= size
		return false
	})
	for _, one := range choices {
		last := ""
		if n := len(c.Groups); n > 0 {
			last = c.Groups[n-1].Name
		}
		if size := one.size(last, len(c.Groups) == 0); !one.Checked && size > room {
			c.More++
			continue
		} else if !one.Checked {
			room -= size
		}
		c.Groups = addChoice(c.Groups, one)
	}
	for i := range c.Groups {
		c.Groups[i].Open = c.Groups[i].Chosen > 0 || find != "" || len(choices) <= openTypes
	}
	return c, typed
}

// fit removes the descriptions of choices that have no room with them.
func fit(choices []typeChoice) {
	all := 0
	for i, one := range choices {
		all += one.size(choices[max(0, i-1)].group, i == 0)
	}
	for i := range choices {
		if all > maxChoiceBytes {
			choices[i].Description = ""
		}
	}
}

// addChoice adds a choice to its group, which is the last one or a new one.
func addChoice(groups []typeGroup, one typeChoice) []typeGroup {
	if n := len(groups); n == 0 || groups[n-1].Name != one.group {
		groups = append(groups, typeGroup{Name: one.group})
	}
	g := &groups[len(groups)-1]
	g.Types = append(g.Types, one)
	if one.Checked {
		g.Chosen++
	}
	return groups
}

// chosenTypes are the event types that a form was sent with: the checked ones, and those that were typed.
func chosenTypes(typed url.Values) []string {
	types := slices.Clone(typed["type"])
	for _, text := range listed(typed.Get("event_types")) {
		if !slices.Contains(types, text) {
			types = append(types, text)
		}
	}
	return types
}

func sameTypes(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
