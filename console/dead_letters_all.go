package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Bounds of discarding all dead letters that match: each is a command of its own. What is left over is said, and
// discarded by repeating it.
const (
	maxDiscarded = 2000
	discardTime  = 30 * time.Second
)

// lettersPath is the page of dead letters with a filter.
func (p *page) lettersPath(f letterFilter) string {
	if encoded := f.Encode(); encoded != "" {
		return p.to("dead-letters") + "?" + encoded
	}
	return p.to("dead-letters")
}

// askReplayLetters asks before all dead letters that match are sent again, with their count.
func askReplayLetters(p *page) error {
	f := p.readLetterFilter(p.r.URL.Query())
	var preview struct {
		Total *int64 `json:"total"`
	}
	if err := p.send(&preview, http.MethodPost, f.replay(), "replays", "preview"); err != nil {
		return err
	}
	what := "all dead letters that match"
	if preview.Total != nil {
		what = countSaid(*preview.Total, false)
	}
	return p.ask(deadLettersTitle, deadLettersTitle, question{
		Asks: asksFor(actReplay, what), Button: buttonOf(actReplay), Back: p.lettersPath(f), Hidden: f.Form.Values,
		Detail: f.describe() + " They are sent at 100 a minute at first; the rate doubles each minute while they succeed. " +
			"The replay can be paused and cancelled.",
	})
}

// describe says which dead letters a filter finds.
func (f letterFilter) describe() string {
	if !f.Any() {
		return "These are all dead letters of the tenant."
	}
	var parts []string
	for _, name := range letterFields() {
		if value := f.Form.Value(name); value != "" {
			parts = append(parts, words(name)+" "+visible(value))
		}
	}
	return "These are the dead letters with " + strings.Join(parts, ", ") + "."
}

// replayLetters creates a replay of all that match.
func replayLetters(p *page) error {
	f := p.readLetterFilter(p.typed)
	var made replay
	if err := p.send(&made, http.MethodPost, f.replay(), "replays"); err != nil {
		return err
	}
	return p.done(p.to("replays", made.ID), "The replay has been started.")
}

// askDiscardLetters asks before all dead letters that match are discarded, with their count.
func askDiscardLetters(p *page) error {
	f := p.readLetterFilter(p.r.URL.Query())
	var groups letterGroups
	if err := p.get(&groups, f.query, "dead-letters", "groups"); err != nil {
		return err
	}
	detail := f.describe() + " " + detailOf(actDiscard)
	if groups.More || groups.Counted > maxDiscarded {
		detail += fmt.Sprintf(" The newest %s are discarded at once; repeat it for the rest.", count(maxDiscarded))
	}
	return p.ask(deadLettersTitle, deadLettersTitle, question{
		Asks: asksFor(actDiscard, groups.Said()), Button: buttonOf(actDiscard), Back: p.lettersPath(f), Hidden: f.Form.Values, Detail: detail,
		Danger: true, Reason: true,
	})
}

// discardLetters discards what matches, within its bounds.
func discardLetters(p *page) error {
	f := p.readLetterFilter(p.typed)
	ctx, cancel := context.WithTimeout(p.r.Context(), discardTime)
	defer cancel()
	done, late, cursor := 0, 0, ""
	stopped := func(err error) error {
		return p.done(p.lettersPath(f), doneSentence(actDiscard, done, late)+restSentence(err))
	}
	for done+late < maxDiscarded && ctx.Err() == nil {
		var found list[deadLetter]
		page := url.Values{"limit": {"100"}, "cursor": {cursor}}
		maps.Copy(page, f.query)
		if err := p.api.get(ctx, &found, page, p.path("dead-letters")); err != nil {
			if done == 0 {
				return err
			}
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return stopped(err)
			}
			break
		}
		for _, letter := range found.Data {
			switch err := p.api.send(ctx, nil, http.MethodPost, p.path("dead-letters", letter.ID, actDiscard), reasonBody(p.typed)); {
			case err == nil:
				done++
			case isStatus(err, http.StatusConflict), isStatus(err, http.StatusNotFound):
				late++
			case ctx.Err() != nil:
			case done > 0:
				return stopped(err)
			default:
				return err
			}
		}
		if cursor = found.NextCursor; cursor == "" {
			break
		}
	}
	sentence := doneSentence(actDiscard, done, late)
	if cursor != "" {
		sentence += " There are more; repeat it for the rest."
	}
	return p.done(p.lettersPath(f), sentence)
}
