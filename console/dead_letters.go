package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
)

// letterGroup is a group of dead letters of an endpoint with the same cause.
type letterGroup struct {
	client.DeadLetterGroup

	Path string `json:"-"` // of the page with this group alone
}

// Answered reports whether the last answer says more than the reason.
func (g letterGroup) Answered() bool {
	return g.Status != nil && g.Reason != "http_"+strconv.Itoa(*g.Status)
}

// letterGroups are the groups of the newest dead letters.
type letterGroups struct {
	Groups  []letterGroup `json:"groups"`
	Counted int           `json:"counted"`
	More    bool          `json:"more"`
}

// Words is the number of dead letters, in words.
func (g letterGroups) Words() string { return letterWords(int64(g.Counted), g.More) }

// deadLettersView is the page of dead letters.
type deadLettersView struct {
	Filter    filter
	Groups    letterGroups
	Letters   []client.Delivery
	Next      string
	Endpoints endpointNames

	ReplayPath, DiscardPath string // that ask about all that match
}

// Form is the form of the filter.
func (v deadLettersView) Form() form { return v.Filter.Form }

const deadLettersTitle = "Dead letters"

// shownGroups bounds the groups of the page; the filter finds the others.
const shownGroups = 20

// showDeadLetters shows the groups of dead letters, and then lists them.
func showDeadLetters(p *page) error {
	typed := p.r.URL.Query()
	v := deadLettersView{Filter: p.readFilter(typed, letterFields()...)}
	replay := newReplayForm().Values
	replay.Set("preview", "1")
	maps.Copy(replay, v.Filter.Form.Values)
	v.ReplayPath = p.to("replays", "new") + "?" + replay.Encode()
	v.DiscardPath = p.to("dead-letters", commandDiscard) + "?" + v.Filter.Encode()
	var err error
	if v.Endpoints, err = readEndpointNames(p); err != nil {
		return err
	}
	if err = p.get(&v.Groups, v.Filter.query, "dead-letters", "groups"); err == nil {
		var found client.Page[client.Delivery]
		err = p.get(&found, v.Filter.page("25", typed.Get("cursor")), "dead-letters")
		v.Letters, v.Next = found.Data, found.NextCursor
	}
	if err != nil {
		if v.Filter, err = v.Filter.refused(err); err != nil {
			return err
		}
	}
	v.Groups.Groups = v.Groups.Groups[:min(len(v.Groups.Groups), shownGroups)]
	for i, g := range v.Groups.Groups {
		narrowed := url.Values{"endpoint_id": {g.EndpointID}, "reason": {g.Reason}}
		if g.Status != nil {
			narrowed.Set("status", strconv.Itoa(*g.Status))
		}
		for _, name := range []string{"event_type", "since", "until"} {
			if value := v.Filter.Form.Value(name); value != "" {
				narrowed.Set(name, value)
			}
		}
		v.Groups.Groups[i].Path = p.to("dead-letters") + "?" + narrowed.Encode()
	}
	return p.show(view{Template: "dead_letters", Title: deadLettersTitle, Entry: deadLettersTitle, Status: v.Form().status(), Data: v})
}

// lettersPath is the page of dead letters with a filter.
func lettersPath(p *page, f filter) string {
	if encoded := f.Encode(); encoded != "" {
		return p.to("dead-letters") + "?" + encoded
	}
	return p.to("dead-letters")
}

// maxSelected bounds the dead letters of one form: those of a page of the list.
const maxSelected = 250

// changeSelected replays or discards the selected dead letters, after it has asked.
func changeSelected(p *page) error {
	typed := p.typed
	ids := typed["id"]
	command := typed.Get("command")
	if one, id, found := strings.Cut(typed.Get("one"), " "); found { // a button of one row
		command, ids = one, []string{id}
	}
	back := p.to("dead-letters")
	if values, err := url.ParseQuery(typed.Get("filter")); err == nil {
		back = lettersPath(p, p.readFilter(values, letterFields()...))
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	switch {
	case command != commandReplay && command != commandDiscard || len(ids) > maxSelected:
		return refusal(http.StatusBadRequest, "the form cannot be used")
	case len(ids) == 0:
		return p.done(back, "Nothing was selected. Select dead letters in the list, then replay or discard them.")
	case typed.Get("sure") == "":
		return p.ask(deadLettersTitle, deadLettersTitle, question{
			Question: questionOf(command, letterWords(int64(len(ids)), false)), Detail: detailOf(command), Button: buttonOf(command), Back: back,
			Danger: command == commandDiscard,
			Hidden: url.Values{"id": ids, "command": {command}, "sure": {"1"}, "filter": {typed.Get("filter")}}, Reason: true,
		})
	}
	done, skipped, err := commandLetters(p.r.Context(), p, ids, command)
	switch {
	case err != nil && done == 0:
		return err
	case err != nil:
		return p.done(back, doneSentence(command, done, skipped)+restSentence(err))
	}
	return p.done(back, doneSentence(command, done, skipped))
}

// commandLetters sends a command to each of the dead letters. It skips those that changed in the meantime.
func commandLetters(ctx context.Context, p *page, ids []string, command string) (done, skipped int, err error) {
	body := reasonBody(p.typed)
	for _, id := range ids {
		switch err := p.api.send(ctx, nil, http.MethodPost, p.path("dead-letters", id, command), body); {
		case err == nil:
			done++
		case isStatus(err, http.StatusConflict), isStatus(err, http.StatusNotFound):
			skipped++
		default:
			return done, skipped, err
		}
	}
	return done, skipped, nil
}

func questionOf(command, what string) string {
	if command == commandDiscard {
		return "Discard " + what + "?"
	}
	return "Send " + what + " again?"
}

func detailOf(command string) string {
	if command == commandDiscard {
		return "A discarded dead letter is not sent any more. It is kept in the lists until its retention ends, and can still be replayed one by one."
	}
	return "Each gets a new run with new limits on attempts and time. The webhook-id stays the same, so the receiver can recognise the repetition."
}

func buttonOf(command string) string {
	if command == commandDiscard {
		return "Discard"
	}
	return "Send again"
}

// doneSentence says what becomes of a command to several dead letters: their workflows carry it out within a second.
func doneSentence(command string, done, skipped int) string {
	text := "Sending " + letterWords(int64(done), false) + " again"
	if command == commandDiscard {
		text = "Discarding " + letterWords(int64(done), false)
	}
	if skipped > 0 {
		text += "; skipped because they changed in the meantime: " + count(int64(skipped))
	}
	return text + "."
}

// restSentence says why a command to several dead letters ended before its end.
func restSentence(err error) string {
	why := "an error"
	if isStatus(err, http.StatusTooManyRequests) {
		why = "a limit of requests"
	}
	return " The rest was not reached because of " + why + "; repeat it in a moment."
}
