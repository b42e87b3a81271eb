package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// Replays stores replays and the commands to them.
type Replays interface {
	// CreateReplay stores a replay, which runs or is queued, and counts its set. CodeNotFound: no such tenant;
	// CodeInvalid: an unknown endpoint.
	CreateReplay(ctx context.Context, by webhook.Actor, r webhook.Replay) (webhook.Replay, error)
	Replay(ctx context.Context, tenantID string, id webhook.ReplayID) (webhook.Replay, error)
	ListReplays(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Replay, error)
	// CommandReplay stores a command. It returns the replay and CodeConflict if the replay's
	// state does not accept the command. If the command has no effect, the replay's Command is
	// not pending.
	CommandReplay(ctx context.Context, by webhook.Actor, tenantID string, id webhook.ReplayID, c webhook.ReplayCommand) (webhook.Replay, error)
}

// ReplayCounts counts sets of replays.
type ReplayCounts interface {
	// CountReplay counts the set that Replays.CreateReplay would fix now; nil if that takes too long. Its errors are
	// those of CreateReplay.
	CountReplay(ctx context.Context, r webhook.Replay) (*int64, error)
}

func showReplay(c call, urls *workflowURLs, r webhook.Replay) client.Replay {
	reason, workflow := r.StateReason, urls.of(c, r.WorkflowID(), r.CompletedAt)
	if r.State == webhook.ReplayQueued {
		reason, workflow = explain.ReplayQueued, nil
	}
	return client.Replay{
		ID: r.ID.String(), State: client.ReplayState(r.State.String()), StateReason: nullable(reason),
		Source:     client.ReplaySource(r.Source.String()),
		EndpointID: nullableText(r.Filter.EndpointID), EventType: nullable(r.Filter.EventType), Reason: nullable(r.Filter.Reason),
		Status: nullable(r.Filter.Status), Since: timestamp(r.Filter.Since), Until: timestamp(r.Filter.Until),
		EndedSince: timestamp(r.Filter.EndedSince), EndedUntil: timestamp(r.Filter.EndedUntil), Unmatched: r.Filter.IncludeUnmatched,
		Total: r.Total, Released: r.Released, Skipped: r.Skipped, Delivered: r.Delivered, Failed: r.Failed,
		Rate: r.Asked, CurrentRate: r.Rate, Ramp: r.Ramp, CreatedAt: timestamp(r.CreatedAt), CompletedAt: timestamp(r.CompletedAt),
		WorkflowID: r.WorkflowID(), WorkflowURL: workflow,
	}
}

// replayHandler makes, shows and changes replays.
type replayHandler struct {
	replays      Replays
	counts       ReplayCounts
	tenants      tenantReader
	starter      Starter
	workflowURLs *workflowURLs
}

func (h *replayHandler) show(c call, r webhook.Replay) client.Replay {
	return showReplay(c, h.workflowURLs, r)
}

// create stores a replay and starts its workflow unless it is queued. It responds after the commit; if Temporal
// is unavailable, the workflow starts later.
func (h *replayHandler) create(c call) error {
	r, err := readReplay(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	r, err = h.replays.CreateReplay(ctx, c.actor(), r)
	if err != nil {
		return err
	}
	h.starter.WakeReplay(context.WithoutCancel(ctx), r)
	return c.json(http.StatusAccepted, h.show(c, r))
}

// preview counts the deliveries that a replay would send, and changes nothing.
func (h *replayHandler) preview(c call) error {
	r, err := readReplay(c)
	if err != nil {
		return err
	}
	total, err := h.counts.CountReplay(c.Request().Context(), r)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.ReplayPreview{Total: total})
}

// readReplay reads the body of a request for a replay.
func readReplay(c call) (webhook.Replay, error) {
	r := webhook.Replay{TenantID: c.tenant, Asked: webhook.DefaultReplayRate, Ramp: true}
	if err := c.object(func(d *jsonDecoder, name string) { readReplayField(d, &r, name) }, "source"); err != nil {
		return r, err
	}
	if bad := replayContradictions(&r); len(bad) > 0 {
		return r, &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: bad}
	}
	return r, nil
}

func readReplayField(d *jsonDecoder, r *webhook.Replay, name string) {
	f := &r.Filter
	switch name {
	case "source":
		r.Source = readReplaySource(d)
	case "endpoint_id":
		set(d, &f.EndpointID, webhook.EndpointID{}, readEndpointID)
	case "event_type":
		set(d, &f.EventType, "", readReplayedType)
	case "reason":
		set(d, &f.Reason, "", readReason)
	case "status":
		set(d, &f.Status, 0, func(d *jsonDecoder) int { return d.integer(100, 999) })
	case "since":
		set(d, &f.Since, time.Time{}, readInstant)
	case "until":
		set(d, &f.Until, time.Time{}, readInstant)
	case "ended_since":
		set(d, &f.EndedSince, time.Time{}, readInstant)
	case "ended_until":
		set(d, &f.EndedUntil, time.Time{}, readInstant)
	case "include_unmatched":
		set(d, &f.IncludeUnmatched, false, readBoolean)
	case "rate_per_minute":
		set(d, &r.Asked, webhook.DefaultReplayRate, readReplayRate)
	case "ramp":
		set(d, &r.Ramp, true, readBoolean)
	default:
		d.unknown()
	}
}

func readInstant(d *jsonDecoder) time.Time {
	at, _ := d.instant() // what is wrong with it is noted
	return at
}

func readReplaySource(d *jsonDecoder) webhook.ReplaySource {
	name, ok := d.str()
	if !ok {
		return 0
	}
	source, known := webhook.ParseReplaySource(name)
	if !known {
		d.note(`must be "dead_letters" or "events"`)
	}
	return source
}

func readEndpointID(d *jsonDecoder) webhook.EndpointID {
	text, ok := d.str()
	if !ok {
		return webhook.EndpointID{}
	}
	id, err := webhook.ParseEndpointID(text)
	if err != nil {
		d.note(err.Error())
	}
	return id
}

func readReplayedType(d *jsonDecoder) string {
	text, ok := d.str()
	if ok && !webhook.ValidFilter(text) {
		d.note(notAFilter)
	}
	return text
}

func readReplayRate(d *jsonDecoder) int { return d.integer(1, webhook.MaxReplayRate) }

// replayContradictions returns errors for fields that exclude each other.
func replayContradictions(r *webhook.Replay) (bad []webhook.FieldError) {
	refuse := func(when bool, field, message string) {
		if when {
			bad = append(bad, webhook.FieldError{Field: field, Message: message})
		}
	}
	events, letters := r.Source == webhook.ReplayEvents, r.Source == webhook.ReplayDeadLetters
	refuse(events && r.Filter.EndpointID.IsZero(), "endpoint_id", `is required with the source "events"`)
	refuse(events && r.Filter.Since.IsZero(), "since", `is required with the source "events"`)
	refuse(!letters && r.Filter.Reason != "", "reason", `is for the source "dead_letters" only`)
	refuse(!letters && r.Filter.Status != 0, "status", `is for the source "dead_letters" only`)
	refuse(!letters && !r.Filter.EndedSince.IsZero(), "ended_since", `is for the source "dead_letters" only`)
	refuse(!letters && !r.Filter.EndedUntil.IsZero(), "ended_until", `is for the source "dead_letters" only`)
	refuse(!events && r.Filter.IncludeUnmatched, "include_unmatched", `is for the source "events" only`)
	both := !r.Filter.Since.IsZero() && !r.Filter.Until.IsZero()
	refuse(both && !r.Filter.Since.Before(r.Filter.Until), "until", "must be after since")
	both = !r.Filter.EndedSince.IsZero() && !r.Filter.EndedUntil.IsZero()
	refuse(both && !r.Filter.EndedSince.Before(r.Filter.EndedUntil), "ended_until", "must be after ended_since")
	return bad
}

func (h *replayHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseReplayID)
	if err != nil {
		return err
	}
	r, err := h.replays.Replay(c.Request().Context(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, h.show(c, r))
}

func (h *replayHandler) list(c call) error {
	q := c.query("replays")
	if err := q.problem(); err != nil {
		return err
	}
	if err := requireTenant(c, h.tenants); err != nil {
		return err
	}
	fetch := func(limit int, after string) ([]webhook.Replay, error) {
		return h.replays.ListReplays(c.Request().Context(), c.tenant, pageOf(limit, after))
	}
	return list(c, q, fetch, func(r webhook.Replay) string { return idPosition(r.ID) }, func(r webhook.Replay) client.Replay { return h.show(c, r) })
}

// command returns the handler of an action on a replay.
func (h *replayHandler) command(action webhook.ReplayAction) func(call) error {
	return func(c call) error {
		id, err := pathID(c, webhook.ParseReplayID)
		if err != nil {
			return err
		}
		if _, err := c.reason(withoutReason); err != nil {
			return err
		}
		return h.store(c, id, webhook.ReplayCommand{Action: action})
	}
}

func (h *replayHandler) update(c call) error {
	id, err := pathID(c, webhook.ParseReplayID)
	if err != nil {
		return err
	}
	cmd := webhook.ReplayCommand{}
	err = c.object(func(d *jsonDecoder, name string) {
		if name != "rate_per_minute" {
			if slices.Contains(replayFields(), name) {
				d.note("is set when the replay is created and cannot be changed")
				d.skip()
				return
			}
			d.unknown()
			return
		}
		set(d, &cmd.Rate, webhook.DefaultReplayRate, readReplayRate)
	}, "rate_per_minute")
	if err != nil {
		return err
	}
	return h.store(c, id, cmd)
}

// replayFields are the fields that can be set only when a replay is created.
func replayFields() []string {
	return []string{"source", "endpoint_id", "event_type", "reason", "status", "since", "until", "ended_since", "ended_until", "include_unmatched", "ramp"}
}

// store stores a command and signals the replay's workflow, unless the command has no
// effect.
func (h *replayHandler) store(c call, id webhook.ReplayID, cmd webhook.ReplayCommand) error {
	ctx := c.Request().Context()
	r, err := h.replays.CommandReplay(ctx, c.actor(), c.tenant, id, cmd)
	if known, ok := errors.AsType[*webhook.Error](err); ok && known.Code == webhook.CodeConflict {
		name := cmd.Action.String()
		if cmd.Rate != 0 {
			name = "another rate"
		}
		return &stateError{command: name, state: r.State.String(), why: known.Message}
	}
	if err != nil {
		return err
	}
	if r.Command.Pending() {
		h.starter.WakeReplay(context.WithoutCancel(ctx), r)
	}
	return c.json(http.StatusAccepted, h.show(c, r))
}
