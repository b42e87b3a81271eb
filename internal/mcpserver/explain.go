package mcpserver

import (
	"context"
	"strings"

	"github.com/everpost/everpost/internal/client"
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
		return explainWith(ctx, c, out, "deliveries", in.ID)
	case "event":
		return explainWith(ctx, c, out, "events", in.ID)
	case "endpoint":
		return explainWith(ctx, c, out, "endpoints", in.ID, "health")
	case "replay":
		return explainReplay(ctx, c, out)
	}
	return "", explained{}, badArgument("id", "is not the id of a delivery (dlv_…), an event (evt_…), an endpoint (ep_…) or a replay (rpl_…)")
}

// explainWith shows the API's own explanation, of the object at path.
func explainWith(ctx context.Context, c *call, out explained, path ...string) (string, explained, error) {
	read, err := get[struct {
		Summary     string                `json:"summary"`
		Explanation *explanation          `json:"explanation"`
		Deliveries  []client.DeliveryStub `json:"deliveries"`
	}](ctx, c, nil, path...)
	if err != nil {
		return "", explained{}, err
	}
	out.Summary, out.Explanation = clip(read.Summary, maxSentence), read.Explanation.bound()
	return fit(maxEventDeliveries, func(n int) (string, explained, error) {
		out.Deliveries, out.More = nil, len(read.Deliveries) > n
		var lines []string
		if out.Summary != "" {
			lines = append(lines, out.Summary)
		}
		for _, d := range read.Deliveries[:min(len(read.Deliveries), n)] {
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
	r, err := get[replay](ctx, c, nil, "replays", out.ID)
	if err != nil {
		return "", explained{}, err
	}
	r = r.bound()
	out.Replay = &r
	return r.line() + "\n", out, nil
}
