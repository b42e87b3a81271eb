package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/everpost/everpost/client"
)

// letterGroup is a group of dead letters of an endpoint with the same cause.
type letterGroup struct {
	client.DeadLetterGroup

	Path, ReplayPath string `json:"-"` // of the page with this group alone, and of the one that asks before it is sent again
	// Wider says that the two pages have more than this group: no filter leaves out those with an answer.
	Wider bool `json:"-"`
}

// Answered reports whether the last answer says more than the reason.
func (g letterGroup) Answered() bool {
	return g.Status != nil && g.Reason != "http_"+strconv.Itoa(*g.Status)
}

// Answer is the last answer as a reason.
func (g letterGroup) Answer() string { return "http_" + strconv.Itoa(*g.Status) }

// letterGroups are the groups of the newest dead letters.
type letterGroups struct {
	Groups  []letterGroup `json:"groups"`
	Counted int           `json:"counted"`
	More    bool          `json:"more"`
	Cut     int           `json:"-"` // groups that are not shown
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
	v.ReplayPath = replayPath(p, v.Filter.Form.Values)
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
	v.Groups.addPaths(p, v.Filter)
	v.Groups.Cut = max(len(v.Groups.Groups)-shownGroups, 0)
	v.Groups.Groups = v.Groups.Groups[:min(len(v.Groups.Groups), shownGroups)]
	return p.show(view{Template: "dead_letters", Title: deadLettersTitle, Entry: deadLettersTitle, Status: v.Form().status(), Data: v})
}

// replayPath is the page that counts the dead letters of a filter and asks whether to send them again.
func replayPath(p *page, filter url.Values) string {
	replay := newReplayForm().Values
	replay.Set("preview", "1")
	maps.Copy(replay, filter)
	return p.to("replays", "new") + "?" + replay.Encode()
}

// addPaths adds to each group where it leads: to what matches the filter of the page, of this group alone.
func (g letterGroups) addPaths(p *page, f filter) {
	for i := range g.Groups {
		of := &g.Groups[i]
		narrowed := url.Values{"endpoint_id": {of.EndpointID}, "reason": {of.Reason}}
		if of.Status != nil {
			narrowed.Set("status", strconv.Itoa(*of.Status))
		}
		for _, name := range []string{"event_type", "since", "until", "ended_since", "ended_until"} {
			if value := f.Form.Value(name); value != "" {
				narrowed.Set(name, value)
			}
		}
		of.Path, of.ReplayPath = p.to("dead-letters")+"?"+narrowed.Encode(), replayPath(p, narrowed)
		of.Wider = of.Status == nil && slices.ContainsFunc(g.Groups, func(o letterGroup) bool {
			return o.EndpointID == of.EndpointID && o.Reason == of.Reason && o.Status != nil
		})
	}
}
