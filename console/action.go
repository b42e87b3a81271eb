package console

import (
	"maps"
	"net/url"
	"slices"

	"github.com/everpost/everpost/client"
)

// explained is an explanation with the buttons of this session.
type explained struct {
	*client.Explanation

	Buttons []button
}

// button leads to a page that does something, or asks first.
type button struct{ Label, Path string }

// Explain adds the buttons to an explanation, but for those that the page of the delivery has itself. Nil for nil.
func (i pageInfo) Explain(e *client.Explanation, delivery string) *explained {
	if e == nil {
		return nil
	}
	shown := explained{Explanation: e}
	for _, a := range e.Actions {
		if b := i.button(a); b.Path != "" && (a.ID == nil || *a.ID != delivery) {
			shown.Buttons = append(shown.Buttons, b)
		}
	}
	return &shown
}

// button is the button of an action; without a path for one that has no page.
func (i pageInfo) button(a client.Action) button {
	id := value(a.ID)
	switch a.Act {
	case "send_again":
		return button{"Send again", i.To("deliveries", id, "replay")}
	case "discard":
		return button{"Discard", i.To("deliveries", id, "discard")}
	case "resume_endpoint":
		return button{"Resume the endpoint", i.To("endpoints", id, "resume")}
	case "test_endpoint":
		return button{"Send a test", i.To("endpoints", id, "test")}
	case "close_circuit":
		return button{"Try it now", i.To("endpoints", id, "close-circuit")}
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
