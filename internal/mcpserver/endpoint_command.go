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

// pauseInput is the arguments of pause_endpoint.
type pauseInput struct {
	endpointCommandInput

	Reason string `json:"reason,omitempty" jsonschema:"Why it is paused, for people."`
}

// resumeInput is the arguments of resume_endpoint.
type resumeInput struct {
	endpointCommandInput

	Reason string `json:"reason,omitempty" jsonschema:"Why it is resumed, for people."`
	Rate   int    `json:"rate_per_minute,omitempty" jsonschema:"Held deliveries released per minute at most; Everpost sets the pace if it is absent."`
}

// switched is the result of a command to an endpoint.
type switched struct {
	endpointView

	ProbeDeliveryID string       `json:"probe_delivery_id,omitempty" jsonschema:"The delivery that is sent now as the probe of the circuit."`
	Release         *releaseView `json:"release,omitempty"           jsonschema:"The release of the held deliveries."`
}

// releaseView is the release of an endpoint's held deliveries.
type releaseView struct {
	EndpointID    string `json:"endpoint_id"`
	State         string `json:"state"                     jsonschema:"running, stopped, or done when nothing is held."`
	RatePerMinute *int   `json:"rate_per_minute,omitempty" jsonschema:"Deliveries per minute at most; absent if Everpost sets the pace."`
	Total         *int64 `json:"total,omitempty"           jsonschema:"Absent until the deliveries are counted."`
	Released      int64  `json:"released"`
	Remaining     *int64 `json:"remaining,omitempty"`
}

func showRelease(r client.Release) releaseView {
	return releaseView{
		EndpointID: clip(r.EndpointID, maxWord), State: clip(string(r.State), maxWord), RatePerMinute: r.RatePerMinute, Total: r.Total,
		Released: r.Released, Remaining: r.Remaining,
	}
}

// releaseWords is the progress of a release in a sentence.
func releaseWords(r client.Release) string {
	text := fmt.Sprintf("The release of its held deliveries is %s: %d released", clip(string(r.State), maxWord), r.Released)
	if r.Remaining != nil {
		text += fmt.Sprintf(", %d remaining", *r.Remaining)
	}
	return text + ".\n"
}

func (s *Server) addEndpointCommands() {
	add(s, tool{
		name: "pause_endpoint", title: "Pause an endpoint", hints: hints{destructive: true, idempotent: true},
		description: "Pauses an endpoint: nothing is sent to it, and its deliveries are held until it is resumed or they expire. " +
			"The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in pauseInput) (intent, error) {
		return planSwitch(ctx, c, in.endpointCommandInput, "Pause %s? Its deliveries are held until it is resumed, at the longest until their give-up time.")
	}, func(ctx context.Context, c *call, in pauseInput) (string, switched, error) {
		e, err := c.of.Endpoints.Pause(ctx, in.ID, client.PauseInput{Reason: in.Reason})
		return switchedEndpoint("pause", e, err)
	})
	add(s, tool{
		name: "resume_endpoint", title: "Resume an endpoint", hints: hints{idempotent: true, sends: true},
		description: "Resumes a paused or disabled endpoint, or a release that was stopped: the held deliveries are released at a rate. " +
			"The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in resumeInput) (intent, error) {
		return planSwitch(ctx, c, in.endpointCommandInput, "Resume %s? Its held deliveries are sent, at a rate.")
	}, func(ctx context.Context, c *call, in resumeInput) (string, switched, error) {
		e, err := c.of.Endpoints.Resume(ctx, in.ID, client.ResumeInput{RatePerMinute: in.Rate, Reason: in.Reason})
		text, out, err := switchedEndpoint("resume", e.Endpoint, err)
		if err == nil {
			out.Release = new(showRelease(e.Release))
			text += releaseWords(e.Release)
		}
		return text, out, err
	})
	add(s, tool{
		name: "stop_release", title: "Stop a release", hints: hints{destructive: true, idempotent: true},
		description: "Stops the release of an active endpoint's held deliveries: the rest of its set, what was held when it began, stays held until " +
			"the endpoint is resumed again, and what is held later is sent. The key needs the scope admin.",
	}, func(ctx context.Context, c *call, in endpointCommandInput) (intent, error) {
		return planSwitch(ctx, c, in, "Stop the release of what is held for %s? The rest of it stays held until the endpoint is resumed again.")
	}, func(ctx context.Context, c *call, in endpointCommandInput) (string, releaseView, error) {
		r, err := c.of.Endpoints.ChangeRelease(ctx, in.ID, client.ReleaseChange{State: client.ReleaseStopped})
		if err != nil {
			return "", releaseView{}, err
		}
		return releaseWords(r), showRelease(r), nil
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
