package api

import (
	"context"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// unansweredRetryAfter is the Retry-After while the process that admits the requests to an endpoint does not answer. Another takes over within
// seconds.
const unansweredRetryAfter = 5 * time.Second

// Circuits are the endpoints' circuit breakers.
type Circuits interface {
	// Circuit returns an endpoint's circuit, aggregated over all sending processes. stale: the process that admits the requests did not
	// answer, and the circuit is what it shared last.
	Circuit(ctx context.Context, tenantID string, id webhook.EndpointID) (seen webhook.Observation, stale bool, err error)
	// CloseCircuit makes an endpoint's open circuit half open and stores a retry command for the
	// oldest waiting delivery, which becomes the probe. Without one the command is zero.
	CloseCircuit(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (webhook.ClosedCircuit, error)
}

// closeCircuit makes an open circuit half open.
func (s *Server) closeCircuit(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := c.noBody(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.config.Endpoints.Endpoint(ctx, c.tenant, id); err != nil {
		return err
	}
	seen, stale, err := s.config.Circuits.Circuit(ctx, c.tenant, id)
	switch {
	case err != nil:
		return err
	case seen.Circuit != webhook.CircuitOpen && stale:
		return &webhook.Error{
			Code: webhook.CodeUnavailable, RetryAfter: unansweredRetryAfter,
			Message: "the worker that enforces the endpoint's limits did not answer in time",
		}
	case seen.Circuit != webhook.CircuitOpen:
		return &stateError{command: "close-circuit", why: "the circuit is " + string(seen.Circuit)}
	}
	closed, err := s.config.Circuits.CloseCircuit(ctx, c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	if closed.Command.Command != webhook.CommandNone {
		s.config.Starter.Commanded(context.WithoutCancel(ctx), closed.Delivery, closed.Command)
	}
	return c.json(http.StatusOK, client.ProbedEndpoint{Endpoint: showEndpoint(closed.Endpoint), ProbeDeliveryID: nullableText(closed.Delivery.DeliveryID)})
}

// mayProbe refuses to retry a delivery while another request probes the endpoint's circuit: the
// delivery would only be deferred. If the circuit is open and no probe is under way, the delivery
// becomes the probe. mayProbe does not check whether the delivery's state accepts the command.
func (s *Server) mayProbe(c call, id webhook.DeliveryID, cmd webhook.PendingCommand) error {
	ctx := c.Request().Context()
	d, err := s.config.Deliveries.Delivery(ctx, c.tenant, id)
	if err != nil {
		return err
	}
	if !cmd.Command.TakenIn(d.State, !d.DueAt.IsZero()) {
		return nil
	}
	seen, _, err := s.config.Circuits.Circuit(ctx, c.tenant, d.EndpointID)
	if err != nil {
		return err
	}
	from := s.config.Now()
	if cmd.At.After(from) {
		from = cmd.At
	}
	if seen.Circuit != webhook.CircuitHalfOpen || !seen.ProbeOver.After(from) {
		return nil
	}
	return &stateError{
		command: cmd.Command.String(), state: d.State.String(), why: "the endpoint's circuit is half open, and another request is the probe",
		waitsFor: webhook.ReasonCircuitOpen, until: seen.ProbeOver.Truncate(time.Millisecond),
	}
}
