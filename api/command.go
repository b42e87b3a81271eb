package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Whether the body of a command may contain a reason.
const (
	withReason    = true
	withoutReason = false
)

// command returns the handler of a command to a delivery.
func command(what webhook.Command, reasoned bool) func(*Server, call) error {
	return func(s *Server, c call) error {
		id, err := pathID(c, webhook.ParseDeliveryID)
		if err != nil {
			return err
		}
		reason, err := c.reason(reasoned)
		if err != nil {
			return err
		}
		return s.command(c, id, webhook.PendingCommand{Command: what, Reason: reason})
	}
}

// command stores a command and signals the delivery's workflow. After the command is stored, the
// signal must be sent even if the client has disconnected.
func (s *Server) command(c call, id webhook.DeliveryID, cmd webhook.PendingCommand) error {
	ctx := c.Request().Context()
	if cmd.Command == webhook.CommandRetry || cmd.Command == webhook.CommandReschedule {
		if err := s.mayProbe(c, id, cmd); err != nil {
			return err
		}
	}
	delivery, stored, err := s.config.Deliveries.Command(ctx, c.actor(), c.tenant, id, cmd)
	if err != nil {
		if known, ok := errors.AsType[*webhook.Error](err); ok && known.Code == webhook.CodeConflict {
			return &stateError{command: cmd.Command.String(), state: known.State.String(), why: known.Message}
		}
		return err
	}
	s.config.Starter.Commanded(context.WithoutCancel(ctx), delivery, stored)
	return c.json(http.StatusAccepted, s.explainedDelivery(c, delivery))
}

// replayDeadLetter replays a delivery that is a dead letter. It refuses a delivery in any other
// state.
func (s *Server) replayDeadLetter(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	reason, err := c.reason(withReason)
	if err != nil {
		return err
	}
	d, err := s.config.Deliveries.Delivery(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	if d.State != webhook.StateDeadLettered {
		return &stateError{command: webhook.CommandReplay.String(), state: d.State.String(), why: "the delivery is " + d.State.String()}
	}
	return s.command(c, id, webhook.PendingCommand{Command: webhook.CommandReplay, Reason: reason})
}

// reschedule moves the next attempt of a delivery to another time.
func (s *Server) reschedule(c call) error {
	id, err := pathID(c, webhook.ParseDeliveryID)
	if err != nil {
		return err
	}
	at, err := c.at()
	if err != nil {
		return err
	}
	return s.command(c, id, webhook.PendingCommand{Command: webhook.CommandReschedule, At: at})
}

// at reads a body with a time. A time in the past means now.
func (c call) at() (at time.Time, err error) {
	text, err := c.body()
	if err != nil {
		return time.Time{}, err
	}
	if text == nil {
		return time.Time{}, webhook.Invalid("at", "is required")
	}
	now := c.server.config.Now().UTC()
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
