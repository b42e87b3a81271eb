package mcpserver

import (
	"context"
	"fmt"

	"github.com/everpost/everpost/client"
)

// endpointCommandInput is the arguments of a command to an endpoint.
type endpointCommandInput struct {
	endpointID
	confirmation
}

// resumeInput is the arguments of resume_endpoint.
type resumeInput struct {
	endpointCommandInput

	Rate int `json:"rate_per_minute,omitempty" jsonschema:"Held deliveries released per minute at first; Everpost chooses if it is absent."`
}

// switched is the result of a command to an endpoint.
type switched struct {
	endpointView

	ProbeDeliveryID string `json:"probe_delivery_id,omitempty" jsonschema:"The delivery that is sent now as the probe of the circuit."`
	ReplayID        string `json:"replay_id,omitempty" jsonschema:"The replay that releases the held deliveries."`
}

func (s *Server) addEndpointCommands() {
	add(s, tool{
		name: "pause_endpoint", title: "Pause an endpoint", hints: hints{destructive: true, idempotent: true},
		description: "Pauses an endpoint: nothing is sent to it, and its deliveries are held until it is resumed or they expire. " +
			"The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in endpointCommandInput) (intent, error) {
		return planSwitch(ctx, c, in, "Pause %s? Its deliveries are held until it is resumed, at the longest until their give-up time.")
	}, func(ctx context.Context, c *call, in endpointCommandInput) (string, switched, error) {
		e, err := c.of.Endpoints.Pause(ctx, in.ID)
		return switchedEndpoint("pause", e, err)
	})
	add(s, tool{
		name: "resume_endpoint", title: "Resume an endpoint", hints: hints{idempotent: true, sends: true},
		description: "Resumes a paused or disabled endpoint: its held deliveries are released at a rate. The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in resumeInput) (intent, error) {
		return planSwitch(ctx, c, in.endpointCommandInput, "Resume %s? Its held deliveries are sent, at a rate.")
	}, func(ctx context.Context, c *call, in resumeInput) (string, switched, error) {
		e, err := c.of.Endpoints.Resume(ctx, in.ID, client.ResumeInput{RatePerMinute: in.Rate})
		text, out, err := switchedEndpoint("resume", e.Endpoint, err)
		if out.ReplayID = value(e.ReplayID); out.ReplayID != "" {
			text += "The replay " + out.ReplayID + " releases the held deliveries.\n"
		}
		return text, out, err
	})
	add(s, tool{
		name: "close_circuit", title: "Close a circuit", hints: hints{sends: true},
		description: "Tries an endpoint whose circuit is open at once: the oldest waiting delivery is sent as the probe. " +
			"For a receiver that has recovered. The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in endpointCommandInput) (intent, error) {
		return planSwitch(ctx, c, in, "Close the circuit of %s? One delivery is sent now; if it succeeds, the others follow.")
	}, func(ctx context.Context, c *call, in endpointCommandInput) (string, switched, error) {
		e, err := c.of.Endpoints.CloseCircuit(ctx, in.ID)
		text, out, err := switchedEndpoint("close-circuit", e.Endpoint, err)
		if out.ProbeDeliveryID = value(e.ProbeDeliveryID); out.ProbeDeliveryID != "" {
			text += "The probe is " + out.ProbeDeliveryID + ".\n"
		}
		return text, out, err
	})
}

// planSwitch says what a command would do. The question has a place for the endpoint.
func planSwitch(ctx context.Context, c *call, in endpointCommandInput, ask string) (intent, error) {
	if err := in.check(); err != nil {
		return intent{}, err
	}
	e, err := c.of.Endpoints.Get(ctx, in.ID)
	if err != nil {
		return intent{}, err
	}
	h, err := c.of.Endpoints.Health(ctx, in.ID)
	if err != nil {
		return intent{}, err
	}
	host := clip(hostOf(e.URL), maxURL)
	which := fmt.Sprintf("the endpoint %s of tenant %s (host %s, %s, %d waiting, %d held)", in.ID, c.tenant, quote(host, maxURL),
		clip(string(e.State), maxWord), h.Waiting, h.Held)
	return intent{text: fmt.Sprintf(ask, which), what: "the host of the endpoint", expect: host}, nil
}

// switchedEndpoint describes an endpoint after a command.
func switchedEndpoint(verb string, e client.Endpoint, err error) (string, switched, error) {
	if err != nil {
		return "", switched{}, err
	}
	out := switched{endpointView: showEndpoint(e)}
	return fmt.Sprintf("Done: %s. The endpoint %s is %s.\n", verb, out.ID, out.State), out, nil
}
