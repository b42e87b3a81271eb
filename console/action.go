package console

import (
	"maps"
	"net/url"
	"slices"
)

// action is something that an explanation's remedy names. The page that asks for it is linked beside the sentence.
type action struct {
	Act  string            `json:"act"`
	ID   string            `json:"id"`
	Body map[string]string `json:"body"`
}

// explained is an explanation with the buttons of this session.
type explained struct {
	*explanation

	Buttons []button
}

// button leads to a page that does something, or asks first.
type button struct{ Label, Path string }

// Explain adds the buttons to an explanation: none in a session that changes nothing, and none that the page of the
// delivery has itself. In a portal it leaves out what only the operator can do. Nil for nil.
func (i pageInfo) Explain(e *explanation, delivery string) *explained {
	if e == nil {
		return nil
	}
	shown := explained{explanation: e}
	if i.Portal {
		own := *e
		own.Operator, shown.explanation = "", &own
	}
	if !i.CanChange {
		return &shown
	}
	for _, a := range e.Actions {
		if b := i.button(a); b.Path != "" && (a.ID == "" || a.ID != delivery) {
			shown.Buttons = append(shown.Buttons, b)
		}
	}
	return &shown
}

// button is the button of an action; without a path for one that has no page.
func (i pageInfo) button(a action) button {
	switch a.Act {
	case "send_again":
		return button{"Send again", i.To("deliveries", a.ID, "replay")}
	case "discard":
		return button{"Discard", i.To("deliveries", a.ID, "discard")}
	case "resume_endpoint":
		return button{"Resume the endpoint", i.To("endpoints", a.ID, "resume")}
	case "test_endpoint":
		return button{"Send a test", i.To("endpoints", a.ID, "test")}
	case "close_circuit":
		return button{"Try it now", i.To("endpoints", a.ID, "close-circuit")}
	case "show_replay":
		return button{"Look at the replay", i.To("replays", a.ID)}
	case "send_events_again":
		return button{"Send past events", i.newReplay(a.Body)}
	case "send_dead_letters_again":
		return button{"Send all dead letters again", i.newReplay(a.Body)}
	}
	return button{}
}

// newReplay is the page of a new replay with these fields.
func (i pageInfo) newReplay(fields map[string]string) string {
	query := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		query.Set(name, fields[name])
	}
	return i.To("replays", "new") + "?" + query.Encode()
}
