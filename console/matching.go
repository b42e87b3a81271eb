package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
)

// Bounds of a command to all rows that match: each is a command of its own. What is left over is said, and reached by repeating it.
const (
	maxMatching  = 2000
	matchingTime = 30 * time.Second
)

// askMatching returns what asks before a command to all rows of a list that match.
func askMatching(s selection, command string) func(*page) error {
	return func(p *page) error {
		asked := p.r.URL.Query()
		if asked.Get("until") == "" { // what comes later was not counted, or seen
			asked.Set("until", p.console.config.Now().UTC().Format(time.RFC3339Nano))
		}
		back := s.listPath(p, p.readFilter(p.r.URL.Query(), s.fields...))
		f, some := s.matching(p.readFilter(asked, s.fields...))
		if !some {
			return p.done(back, "Nothing that matches is open.")
		}
		what, more, err := s.count(p, f)
		if err != nil {
			return err
		}
		detail := s.describe(f) + " " + detailOf(command)
		if more {
			detail += fmt.Sprintf(" It reaches the newest %s at once; after that the list shows the rest.", count(maxMatching))
		}
		return p.ask(s.title, s.title, question{
			Question: questionOf(command, what), Button: buttonOf(command), Back: back,
			Hidden: f.query, Detail: detail, Danger: command != commandRetry, Reason: command != commandRetry,
		})
	}
}

// matching is the filter without what a command to all could not change: ended deliveries. It reports whether anything is left.
func (s selection) matching(f filter) (left filter, some bool) {
	if s.path != selectedDeliveries().path {
		return f, true
	}
	open := []string{"pending", "retrying", "held"}
	if given := f.query["state"]; len(given) > 0 {
		open = slices.DeleteFunc(open, func(state string) bool { return !slices.Contains(given, state) })
	}
	f.query["state"] = open
	return f, len(open) > 0
}

// count is how many rows match, in words. Deliveries are not counted, but the filter is checked.
func (s selection) count(p *page, f filter) (what string, more bool, err error) {
	if s.path != selectedLetters().path {
		var first client.Page[client.Delivery]
		return "all open " + s.many + " that match", true, p.get(&first, f.page("1", ""), s.path)
	}
	var groups letterGroups
	err = p.get(&groups, f.query, "dead-letters", "groups")
	return groups.Words(), groups.More || groups.Counted > maxMatching, err
}

// describe says which rows a filter finds.
func (s selection) describe(f filter) string {
	var parts []string
	for _, name := range f.Form.known {
		if value := strings.Join(f.Form.Values[name], ", "); value != "" {
			parts = append(parts, words(name)+" "+visible(value))
		}
	}
	if len(parts) == 0 {
		return "These are all " + s.many + " of the tenant."
	}
	return "These are the " + s.many + " with " + strings.Join(parts, ", ") + "."
}

// changeMatching returns what sends a command to all rows that match, within its bounds.
func changeMatching(s selection, command string) func(*page) error {
	return func(p *page) error {
		f, some := s.matching(p.readFilter(p.typed, s.fields...))
		if !some {
			return p.done(s.listPath(p, f), "Nothing that matches is open.")
		}
		ctx, cancel := context.WithTimeout(p.r.Context(), matchingTime)
		defer cancel()
		done, skipped, cursor, more := 0, 0, "", true
		var last client.Time
		for more && done+skipped < maxMatching && ctx.Err() == nil {
			var found client.Page[client.Delivery]
			err := p.api.get(ctx, &found, f.page("100", cursor), p.path(s.path))
			if err == nil {
				ids := make([]string, len(found.Data))
				for i, row := range found.Data {
					ids[i], last = row.ID, row.CreatedAt
				}
				var changed, left int
				changed, left, err = s.command(ctx, p, ids, command)
				done, skipped = done+changed, skipped+left
			}
			if err != nil {
				if done == 0 {
					return err
				}
				if ctx.Err() == nil {
					return p.done(s.listPath(p, f), s.doneSentence(command, done, skipped)+restSentence(err))
				}
				break // the time is over
			}
			cursor = found.NextCursor
			more = cursor != ""
		}
		sentence := s.doneSentence(command, done, skipped)
		if more {
			sentence += " There are more: these, which are older."
			f.Form.Values.Set("until", rfc3339(last.Time))
		}
		return p.done(s.listPath(p, f), sentence)
	}
}
