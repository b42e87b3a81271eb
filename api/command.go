package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// commandHandler passes commands to deliveries.
type commandHandler struct {
	deliveries Deliveries
	circuits   Circuits
	starter    Starter
	views      *deliveryViews
	now        func() time.Time
}

// command returns the handler of a command to a delivery.
func (h *commandHandler) command(what webhook.Command, reasoned bool) func(call) error {
	return func(c call) error {
		id, err := pathID(c, webhook.ParseDeliveryID)
		if err != nil {
			return err
		}
		reason, err := c.reason(reasoned)
		if err != nil {
			return err
		}
		return h.store(c, id, webhook.PendingCommand{Command: what, Reason: reason})
	}
}

// store stores a command and signals the delivery's workflow. After the command is stored, the
// signal must be sent even if the client has disconnected.
func (h *commandHandler) store(c call, id webhook.DeliveryID, cmd webhook.PendingCommand) error {
	ctx := c.Request().Context()
	if cmd.Command == webhook.CommandRetry || cmd.Command == webhook.CommandReschedule {
		if err := h.mayProbe(c, id, cmd); err != nil {
			return err
		}
	}
	delivery, stored, err := h.deliveries.Command(ctx, c.actor(), c.tenant, id, cmd)
	if err != nil {
		if known, ok := errors.AsType[*webhook.Error](err); ok && known.Code == webhook.CodeConflict {
			return &stateError{command: cmd.Command.String(), state: known.State.String(), why: known.Message}
		}
		return err
	}
	h.starter.Commanded(context.WithoutCancel(ctx), delivery, stored)
	return c.json(http.StatusAccepted, h.views.explained(c, delivery))
}

// cancelEvent cancels all open deliveries of an event.
func (h *commandHandler) cancelEvent(c call) error {
	id, err := pathID(c, webhook.ParseEventID)
	if err != nil {
		return err
	}
	reason, err := c.reason(withReason)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	cancelled, err := h.deliveries.CancelEvent(ctx, c.actor(), c.tenant, id, reason)
	if err != nil {
		return err
	}
	for _, d := range cancelled {
		h.starter.Commanded(context.WithoutCancel(ctx), d.Delivery, d.Command)
	}
	return c.json(http.StatusAccepted, client.CancelledEvent{EventID: id.String(), Cancelled: len(cancelled)})
}

// replayDeadLetter replays a delivery that is a dead letter. It refuses a delivery in any other
// state.
func (h *commandHandler) replayDeadLetter(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	reason, err := c.reason(withReason)
	if err != nil {
		return err
	}
	d, err := h.deliveries.Delivery(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	if d.State != webhook.StateDeadLettered {
		return &stateError{command: webhook.CommandReplay.String(), state: d.State.String(), why: "the delivery is " + d.State.String()}
	}
	return h.store(c, id, webhook.PendingCommand{Command: webhook.CommandReplay, Reason: reason})
}

// reschedule moves the next attempt of a delivery to another time.
func (h *commandHandler) reschedule(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	at, err := readAt(c, h.now().UTC())
	if err != nil {
		return err
	}
	return h.store(c, id, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at})
}

// mayProbe refuses to retry a delivery while another request probes the endpoint's circuit: the
// delivery would only be deferred. If the circuit is open and no probe is under way, the delivery
// becomes the probe. mayProbe does not check whether the delivery's state accepts the command.
func (h *commandHandler) mayProbe(c call, id webhook.DeliveryID, cmd webhook.PendingCommand) error {
	ctx := c.Request().Context()
	d, err := h.deliveries.Delivery(ctx, c.tenant, id)
	if err != nil {
		return err
	}
	if !cmd.Command.TakenIn(d.State, !d.DueAt.IsZero()) {
		return nil
	}
	seen, _, err := h.circuits.Circuit(ctx, c.tenant, d.EndpointID)
	if err != nil {
		return err
	}
	from := h.now()
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

// readAt reads a body with a time. A time in the past means now.
func readAt(c call, now time.Time) (at time.Time, err error) {
	text, err := c.body()
	if err != nil {
		return time.Time{}, err
	}
	if text == nil {
		return time.Time{}, webhook.Invalid("at", "is required")
	}
	return at, readObject(text, func(d *jsonDecoder, name string) {
		if name != "at" {
			d.unknown()
			return
		}
		var ok bool
		if at, ok = d.instant(); ok && at.Sub(now) > maxDeliverAhead {
			d.note("must be at most 30 days ahead")
		}
		if at.Before(now) {
			at = now
		}
	}, "at")
}
