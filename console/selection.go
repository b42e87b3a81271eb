package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// selection is a list whose rows can be chosen for a command.
type selection struct {
	path     string // of its page, and of its resource in the API
	title    string
	one      string // what a row is called
	many     string
	fields   []string // of its filter
	commands []string
}

func selectedLetters() selection {
	return selection{
		path: "dead-letters", title: deadLettersTitle, one: "dead letter", many: "dead letters", fields: letterFields(),
		commands: []string{commandReplay, commandDiscard},
	}
}

func selectedDeliveries() selection {
	return selection{
		path: "deliveries", title: deliveriesTitle, one: "delivery", many: "deliveries", fields: deliveryFields(),
		commands: []string{commandRetry, commandReplay, commandCancel},
	}
}

// words is a number of rows in words.
func (s selection) words(n int) string {
	if n == 1 {
		return "1 " + s.one
	}
	return count(int64(n)) + " " + s.many
}

// listPath is the page of the list with a filter.
func (s selection) listPath(p *page, f filter) string {
	if encoded := f.Encode(); encoded != "" {
		return p.to(s.path) + "?" + encoded
	}
	return p.to(s.path)
}

// maxSelected bounds the rows of one form: those of a page of a list.
const maxSelected = 250

// changeSelected returns what sends a command to the selected rows, after it has asked.
func changeSelected(s selection) func(*page) error {
	return func(p *page) error {
		typed := p.typed
		ids := typed["id"]
		command := typed.Get("command")
		if one, id, found := strings.Cut(typed.Get("one"), " "); found { // a button of one row
			command, ids = one, []string{id}
		}
		back := p.to(s.path)
		if values, err := url.ParseQuery(typed.Get("filter")); err == nil {
			back = s.listPath(p, p.readFilter(values, s.fields...))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		switch {
		case !slices.Contains(s.commands, command) || len(ids) > maxSelected:
			return refusal(http.StatusBadRequest, "the form cannot be used")
		case len(ids) == 0:
			return p.done(back, "Nothing was selected. Select "+s.many+" in the list, then press the button again.")
		case typed.Get("sure") == "":
			return p.ask(s.title, s.title, question{
				Question: questionOf(command, s.words(len(ids))), Detail: detailOf(command), Button: buttonOf(command), Back: back,
				Danger: command == commandDiscard || command == commandCancel,
				Hidden: url.Values{"id": ids, "command": {command}, "sure": {"1"}, "filter": {typed.Get("filter")}}, Reason: command != commandRetry,
			})
		}
		done, skipped, err := s.command(p.r.Context(), p, ids, command)
		switch {
		case err != nil && done == 0:
			return err
		case err != nil:
			return p.done(back, s.doneSentence(command, done, skipped)+restSentence(err))
		}
		return p.done(back, s.doneSentence(command, done, skipped))
	}
}

// command sends a command to each of the rows. It skips those whose state does not allow it, or that are gone.
func (s selection) command(ctx context.Context, p *page, ids []string, command string) (done, skipped int, err error) {
	var body any
	if command != commandRetry {
		body = reasonBody(p.typed)
	}
	for _, id := range ids {
		switch err := p.api.send(ctx, nil, http.MethodPost, p.path(s.path, id, command), body); {
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
	switch command {
	case commandDiscard:
		return "Discard " + what + "?"
	case commandCancel:
		return "Cancel " + what + "?"
	case commandRetry:
		return "Send " + what + " now?"
	}
	return "Send " + what + " again?"
}

func detailOf(command string) string {
	switch command {
	case commandDiscard:
		return "A discarded dead letter is not sent any more. It is kept in the lists until its retention ends, and can still be replayed one by one."
	case commandCancel:
		return "What is cancelled is not tried again. Requests in flight are not aborted. Deliveries that have ended are skipped."
	case commandRetry:
		return "The next attempt of each is made as soon as its endpoint can take it. Deliveries that have ended are skipped: send them again instead."
	}
	return "Each gets a new run with new limits on attempts and time. The webhook-id stays the same, so the receiver can recognise the repetition."
}

func buttonOf(command string) string {
	switch command {
	case commandDiscard:
		return "Discard"
	case commandCancel:
		return "Cancel them"
	case commandRetry:
		return "Send now"
	}
	return "Send again"
}

// doneSentence says what becomes of a command to several rows: their workflows carry it out within a second.
func (s selection) doneSentence(command string, done, skipped int) string {
	text := "Sending " + s.words(done) + " again"
	switch command {
	case commandDiscard:
		text = "Discarding " + s.words(done)
	case commandCancel:
		text = "Cancelling " + s.words(done)
	case commandRetry:
		text = "Sending " + s.words(done) + " now"
	}
	if skipped > 0 {
		text += "; skipped because their state does not allow it: " + count(int64(skipped))
	}
	return text + "."
}

// restSentence says why a command to several rows ended before its end.
func restSentence(err error) string {
	why := "an error"
	if isStatus(err, http.StatusTooManyRequests) {
		why = "a limit of requests"
	}
	return " The rest was not reached because of " + why + "; repeat it in a moment."
}
