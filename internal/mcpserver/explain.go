package mcpserver

import (
	"context"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// maxEventDeliveries is how many deliveries of an event are listed.
const maxEventDeliveries = 20

// anyID is the id of an object of any kind as an argument.
type anyID struct {
	scope

	ID string `json:"id" jsonschema:"The id of a delivery (dlv_…), an event (evt_…), an endpoint (ep_…) or a replay (rpl_…)."`
}

// explained is the result of explain.
type explained struct {
	ID          string                `json:"id"`
	Kind        string                `json:"kind" jsonschema:"delivery, event, endpoint or replay"`
	Summary     string                `json:"summary,omitempty"`
	Explanation *explanation          `json:"explanation,omitempty"`
	Deliveries  []client.DeliveryStub `json:"deliveries,omitempty" jsonschema:"Of an event: at most 20."`
	More        bool                  `json:"more_deliveries,omitempty"`
	Replay      *replay               `json:"replay,omitempty"`
}

func (s *Server) addExplainTool() {
	add(s, tool{
		name: "explain", title: "Explain an object",
		description: "Explains a delivery, an event, an endpoint or a replay by its id: what happened, why, what happens next, and what can be done. " +
			"Call this first. Endpoints need a key with the scope admin.",
	}, nil, explainID)
}

func explainID(ctx context.Context, c *call, in anyID) (string, explained, error) {
	kind, err := webhook.KindOf(in.ID)
	if err != nil {
		kind = ""
	}
	out := explained{ID: in.ID, Kind: kind}
	switch kind {
	case "delivery":
		d, err := c.of.Deliveries.Get(ctx, in.ID)
		return explainWith(out, d.Summary, d.Explanation, nil, err)
	case "event":
		e, err := c.of.Events.Get(ctx, in.ID)
		return explainWith(out, e.Summary, e.Explanation, e.Deliveries, err)
	case "endpoint":
		h, err := c.of.Endpoints.Health(ctx, in.ID)
		return explainWith(out, h.Summary, &h.Explanation, nil, err)
	case "replay":
		return explainReplay(ctx, c, out)
	}
	return "", explained{}, badArgument("id", "is not the id of a delivery (dlv_…), an event (evt_…), an endpoint (ep_…) or a replay (rpl_…)")
}

// explainWith shows the API's own explanation of an object. Deliveries are those of an event.
func explainWith(out explained, summary string, e *client.Explanation, deliveries []client.DeliveryStub, err error) (string, explained, error) {
	if err != nil {
		return "", explained{}, err
	}
	out.Summary, out.Explanation = clip(summary, maxSentence), showExplanation(e)
	return fit(maxEventDeliveries, func(n int) (string, explained, error) {
		out.Deliveries, out.More = nil, len(deliveries) > n
		var lines []string
		if out.Summary != "" {
			lines = append(lines, out.Summary)
		}
		for _, d := range deliveries[:min(len(deliveries), n)] {
			d.Summary = clip(d.Summary, maxSentence)
			out.Deliveries = append(out.Deliveries, d)
			lines = append(lines, d.ID+" to "+d.EndpointID+": "+d.Summary)
		}
		switch {
		case out.More:
			lines = append(lines, "It has more deliveries: list_deliveries with event_id lists them.")
		case len(lines) == 0:
			lines = append(lines, "The event's deliveries are past their retention.")
		}
		return strings.Join(lines, "\n") + "\n" + out.Explanation.text(), out, nil
	})
}

func explainReplay(ctx context.Context, c *call, out explained) (string, explained, error) {
	read, err := c.of.Replays.Get(ctx, out.ID)
	if err != nil {
		return "", explained{}, err
	}
	r := showReplay(read)
	out.Replay = &r
	return r.line() + "\n", out, nil
}
