package mcpserver

import (
	"context"
	"strings"

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
	ID          string         `json:"id"`
	Kind        string         `json:"kind" jsonschema:"delivery, event, endpoint or replay"`
	Summary     string         `json:"summary,omitempty"`
	Explanation *explanation   `json:"explanation,omitempty"`
	Deliveries  []deliveryStub `json:"deliveries,omitempty" jsonschema:"Of an event: at most 20."`
	More        bool           `json:"more_deliveries,omitempty"`
	Replay      *replay        `json:"replay,omitempty"`
}

// deliveryStub is a delivery of an event.
type deliveryStub struct {
	ID         string `json:"id"`
	EndpointID string `json:"endpoint_id"`
	State      string `json:"state"`
	Summary    string `json:"summary"`
}

func (s *Server) addExplainTool() {
	addRead(s, tool{
		name: "explain", title: "Explain how something is doing",
		description: "Explains a delivery, an event, an endpoint or a replay by its id: what happened, why, what happens next, and what can be done. " +
			"Call this first. Endpoints need a key with the scope admin.",
	}, explainAny)
}

func explainAny(ctx context.Context, c *call, in anyID) (string, explained, error) {
	kind, _, _ := strings.Cut(in.ID, "_")
	var err error
	switch kind {
	case "dlv":
		if _, err = webhook.ParseDeliveryID(in.ID); err == nil {
			return explainWith(ctx, c, explained{ID: in.ID, Kind: "delivery"}, "deliveries", in.ID)
		}
	case "evt":
		if _, err = webhook.ParseEventID(in.ID); err == nil {
			return explainWith(ctx, c, explained{ID: in.ID, Kind: "event"}, "events", in.ID)
		}
	case "ep":
		if _, err = webhook.ParseEndpointID(in.ID); err == nil {
			return explainWith(ctx, c, explained{ID: in.ID, Kind: "endpoint"}, "endpoints", in.ID, "health")
		}
	case "rpl":
		if _, err = webhook.ParseReplayID(in.ID); err == nil {
			return explainReplay(ctx, c, in.ID)
		}
	}
	return "", explained{}, badArgument("id", "is not the id of a delivery (dlv_…), an event (evt_…), an endpoint (ep_…) or a replay (rpl_…)")
}

// explainWith shows the API's own explanation, of the object at path.
func explainWith(ctx context.Context, c *call, out explained, path ...string) (string, explained, error) {
	known, err := get[struct {
		Summary     string         `json:"summary"`
		Explanation *explanation   `json:"explanation"`
		Deliveries  []deliveryStub `json:"deliveries"`
	}](ctx, c, nil, path...)
	if err != nil {
		return "", explained{}, err
	}
	out.Summary, out.Explanation = clip(known.Summary, maxSentence), known.Explanation.bound()
	return fit(maxEventDeliveries, func(n int) (string, explained, error) {
		out.Deliveries, out.More = nil, len(known.Deliveries) > n
		var lines []string
		if out.Summary != "" {
			lines = append(lines, out.Summary)
		}
		for _, d := range known.Deliveries[:min(len(known.Deliveries), n)] {
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

func explainReplay(ctx context.Context, c *call, id string) (string, explained, error) {
	r, err := get[replay](ctx, c, nil, "replays", id)
	if err != nil {
		return "", explained{}, err
	}
	r = r.bound()
	return r.line() + "\n", explained{ID: id, Kind: "replay", Replay: &r}, nil
}
