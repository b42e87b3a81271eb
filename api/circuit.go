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

// circuitHandler closes circuits.
type circuitHandler struct {
	circuits  Circuits
	endpoints Endpoints
	starter   Starter
}

// close makes an open circuit half open.
func (h *circuitHandler) close(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	if err := c.noBody(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := h.endpoints.Endpoint(ctx, c.tenant, id); err != nil {
		return err
	}
	seen, stale, err := h.circuits.Circuit(ctx, c.tenant, id)
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
	closed, err := h.circuits.CloseCircuit(ctx, c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	if closed.Command.Command != webhook.CommandNone {
		h.starter.Commanded(context.WithoutCancel(ctx), closed.Delivery, closed.Command)
	}
	return c.json(http.StatusOK, client.ProbedEndpoint{Endpoint: showEndpoint(closed.Endpoint), ProbeDeliveryID: nullableText(closed.Delivery.DeliveryID)})
}
