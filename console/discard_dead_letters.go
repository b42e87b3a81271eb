package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
)

// Bounds of discarding all dead letters that match: each is a command of its own. What is left over is said, and
// discarded by repeating it.
const (
	maxDiscarded = 2000
	discardTime  = 30 * time.Second
)

// askDiscardLetters asks before all dead letters that match are discarded, with their count.
func askDiscardLetters(p *page) error {
	asked := p.r.URL.Query()
	if asked.Get("until") == "" { // what comes later was not counted
		asked.Set("until", p.console.config.Now().UTC().Format(time.RFC3339Nano))
	}
	f := p.readFilter(asked, letterFields()...)
	var groups letterGroups
	if err := p.get(&groups, f.query, "dead-letters", "groups"); err != nil {
		return err
	}
	detail := f.describe() + " " + detailOf(commandDiscard)
	if groups.More || groups.Counted > maxDiscarded {
		detail += fmt.Sprintf(" The newest %s are discarded at once; repeat it for the rest.", count(maxDiscarded))
	}
	back := selectedLetters().listPath(p, p.readFilter(p.r.URL.Query(), letterFields()...))
	return p.ask(deadLettersTitle, deadLettersTitle, question{
		Question: questionOf(commandDiscard, groups.Words()), Button: buttonOf(commandDiscard), Back: back,
		Hidden: f.query, Detail: detail, Danger: true, Reason: true,
	})
}

// describe says which dead letters a filter finds.
func (f filter) describe() string {
	if !f.Any() {
		return "These are all dead letters of the tenant."
	}
	var parts []string
	for _, name := range f.Form.known {
		if value := f.Form.Value(name); value != "" {
			parts = append(parts, words(name)+" "+visible(value))
		}
	}
	return "These are the dead letters with " + strings.Join(parts, ", ") + "."
}

// discardLetters discards what matches, within its bounds.
func discardLetters(p *page) error {
	f := p.readFilter(p.typed, letterFields()...)
	ctx, cancel := context.WithTimeout(p.r.Context(), discardTime)
	defer cancel()
	done, skipped, cursor, more := 0, 0, "", true
	for more && done+skipped < maxDiscarded && ctx.Err() == nil {
		var found client.Page[client.Delivery]
		err := p.api.get(ctx, &found, f.page("100", cursor), p.path("dead-letters"))
		if err == nil {
			ids := make([]string, len(found.Data))
			for i, letter := range found.Data {
				ids[i] = letter.ID
			}
			var discarded, changed int
			discarded, changed, err = selectedLetters().command(ctx, p, ids, commandDiscard)
			done, skipped = done+discarded, skipped+changed
		}
		if err != nil {
			if done == 0 {
				return err
			}
			if ctx.Err() == nil {
				return p.done(selectedLetters().listPath(p, f), selectedLetters().doneSentence(commandDiscard, done, skipped)+restSentence(err))
			}
			break // the time is over
		}
		cursor = found.NextCursor
		more = cursor != ""
	}
	sentence := selectedLetters().doneSentence(commandDiscard, done, skipped)
	if more {
		sentence += " There are more; repeat it for the rest."
	}
	return p.done(selectedLetters().listPath(p, f), sentence)
}
