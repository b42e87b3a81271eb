package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func deadLetterRoutes() []route {
	const path = "/t/{tenant}/dead-letters"
	return []route{
		{pattern: "GET " + path, handle: showDeadLetters},
		{pattern: "POST " + path + "/selected", handle: changeSelected},
		{pattern: "GET " + path + "/replay", handle: askReplayLetters},
		{pattern: "POST " + path + "/replay", handle: replayLetters},
		{pattern: "GET " + path + "/discard", handle: askDiscardLetters},
		{pattern: "POST " + path + "/discard", handle: discardLetters, slow: true},
	}
}

// deadLetter is what the list shows of a dead letter.
type deadLetter struct {
	ID          string    `json:"id"`
	EndpointID  string    `json:"endpoint_id"`
	EventType   string    `json:"event_type"`
	Reason      string    `json:"reason"`
	Summary     string    `json:"summary"`
	Attempts    int       `json:"attempts"`
	CompletedAt time.Time `json:"completed_at"`
}

// letterGroup is a group of dead letters of an endpoint with the same cause.
type letterGroup struct {
	EndpointID string    `json:"endpoint_id"`
	Reason     string    `json:"reason"`
	Status     int       `json:"status"`
	Count      int       `json:"count"`
	Newest     time.Time `json:"newest_at"`
	Example    string    `json:"example_id"`

	Path string `json:"-"` // of the page with this group alone
}

// Answered reports whether the last answer says more than the reason.
func (g letterGroup) Answered() bool {
	return g.Status != 0 && g.Reason != "http_"+strconv.Itoa(g.Status)
}

// letterGroups are the groups of the newest dead letters.
type letterGroups struct {
	Groups  []letterGroup `json:"groups"`
	Counted int           `json:"counted"`
	More    bool          `json:"more"`
}

// Said is the number of dead letters, in words.
func (g letterGroups) Said() string { return countSaid(int64(g.Counted), g.More) }

// countSaid is a number of dead letters in words.
func countSaid(n int64, more bool) string {
	switch {
	case more:
		return "more than " + count(n) + " dead letters"
	case n == 1:
		return "1 dead letter"
	}
	return count(n) + " dead letters"
}

// deadLettersView is the page of dead letters.
type deadLettersView struct {
	Filter    letterFilter
	Groups    letterGroups
	Letters   []deadLetter
	Next      string
	Endpoints endpointNames

	ReplayPath, DiscardPath string // that ask about all that match
}

const deadLettersTitle = "Dead letters"

// shownGroups bounds the groups of the page; the filter finds the others.
const shownGroups = 20

// showDeadLetters shows the groups of dead letters, and then lists them.
func showDeadLetters(p *page) error {
	typed := p.r.URL.Query()
	v := deadLettersView{Filter: p.readLetterFilter(typed)}
	v.ReplayPath = p.to("dead-letters", actReplay) + "?" + v.Filter.Encode()
	v.DiscardPath = p.to("dead-letters", actDiscard) + "?" + v.Filter.Encode()
	var err error
	if v.Endpoints, err = p.endpointNames(); err != nil {
		return err
	}
	if err = p.get(&v.Groups, v.Filter.query, "dead-letters", "groups"); err == nil {
		var found list[deadLetter]
		page := url.Values{"limit": {"25"}, "cursor": {typed.Get("cursor")}}
		maps.Copy(page, v.Filter.query)
		err = p.get(&found, page, "dead-letters")
		v.Letters, v.Next = found.Data, found.NextCursor
	}
	if err != nil {
		var other error
		if v.Filter, other = v.Filter.refused(err); other != nil {
			return other
		}
	}
	v.Groups.Groups = v.Groups.Groups[:min(len(v.Groups.Groups), shownGroups)]
	for i, g := range v.Groups.Groups {
		narrowed := url.Values{"endpoint_id": {g.EndpointID}, "reason": {g.Reason}}
		if g.Status != 0 {
			narrowed.Set("status", strconv.Itoa(g.Status))
		}
		for _, name := range []string{"event_type", "since", "until"} {
			if value := v.Filter.Form.Value(name); value != "" {
				narrowed.Set(name, value)
			}
		}
		v.Groups.Groups[i].Path = p.to("dead-letters") + "?" + narrowed.Encode()
	}
	return p.show(view{Template: "dead_letters", Title: deadLettersTitle, Entry: deadLettersTitle, Data: v})
}

// Acts on dead letters.
const (
	actReplay  = "replay"
	actDiscard = "discard"
)

// maxSelected bounds the dead letters of one form: those of a page of the list.
const maxSelected = 250

// changeSelected replays or discards the selected dead letters, after it has asked.
func changeSelected(p *page) error {
	typed := p.typed
	ids := typed["id"]
	act := typed.Get("act")
	if one, id, found := strings.Cut(typed.Get("one"), " "); found { // a button of one row
		act, ids = one, []string{id}
	}
	back := p.to("dead-letters")
	if filter := typed.Get("filter"); filter != "" {
		if values, err := url.ParseQuery(filter); err == nil {
			back += "?" + p.readLetterFilter(values).Encode()
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	switch {
	case act != actReplay && act != actDiscard || len(ids) > maxSelected:
		return &problem{Status: http.StatusBadRequest, Detail: "the form cannot be used"}
	case len(ids) == 0:
		return p.done(back, "Nothing was selected. Select dead letters in the list, then replay or discard them.")
	case typed.Get("sure") == "":
		return p.ask(deadLettersTitle, deadLettersTitle, question{
			Asks: asksFor(act, countSaid(int64(len(ids)), false)), Detail: detailOf(act), Button: buttonOf(act), Back: back, Danger: act == actDiscard,
			Hidden: url.Values{"id": ids, "act": {act}, "sure": {"1"}, "filter": {typed.Get("filter")}}, Reason: true,
		})
	}
	done, late := 0, 0
	for _, id := range ids {
		switch err := p.send(nil, http.MethodPost, reasonBody(typed), "dead-letters", id, act); {
		case err == nil:
			done++
		case isStatus(err, http.StatusConflict), isStatus(err, http.StatusNotFound):
			late++
		case done > 0:
			return p.done(back, doneSentence(act, done, late)+restSentence(err))
		default:
			return err
		}
	}
	return p.done(back, doneSentence(act, done, late))
}

// reasonBody is the body with the reason that a form gives.
func reasonBody(typed url.Values) map[string]any {
	if reason := typed.Get("reason"); reason != "" {
		return map[string]any{"reason": reason}
	}
	return map[string]any{}
}

func asksFor(act, what string) string {
	if act == actDiscard {
		return "Discard " + what + "?"
	}
	return "Send " + what + " again?"
}

func detailOf(act string) string {
	if act == actDiscard {
		return "A discarded dead letter is not sent any more. It is kept in the lists until its retention ends, and can still be replayed one by one."
	}
	return "Each gets a new run with a fresh budget of attempts. The event's id stays the same, so that the receiver can tell a repetition."
}

func buttonOf(act string) string {
	if act == actDiscard {
		return "Discard"
	}
	return "Send again"
}

// doneSentence says what becomes of a command to several dead letters: their workflows carry it out within a second.
func doneSentence(act string, done, late int) string {
	text := "Sending " + countSaid(int64(done), false) + " again."
	if act == actDiscard {
		text = "Discarding " + countSaid(int64(done), false) + "."
	}
	if late > 0 {
		text += fmt.Sprintf(" %d had changed meanwhile and stay as they are.", late)
	}
	return text
}

// restSentence says why a command to several dead letters ended before its end.
func restSentence(err error) string {
	why := "an error"
	if isStatus(err, http.StatusTooManyRequests) {
		why = "a limit of requests"
	}
	return " The rest was not reached because of " + why + "; repeat it in a moment."
}
