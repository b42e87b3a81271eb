package client

import (
	"context"
	"net/http"
	"time"
)

// ReplayState is the state of a replay.
type ReplayState string

// The states of replays.
const (
	ReplayQueued    ReplayState = "queued" // it waits until fewer replays run
	ReplayRunning   ReplayState = "running"
	ReplayPaused    ReplayState = "paused"
	ReplayCompleted ReplayState = "completed"
	ReplayCancelled ReplayState = "cancelled"
)

// ReplaySource is what a replay sends.
type ReplaySource string

// The sources of replays.
const (
	ReplayDeadLetters ReplaySource = "dead_letters"
	ReplayEvents      ReplaySource = "events"
)

// Replay sends many deliveries again, at a rate.
type Replay struct {
	ID          string       `json:"id"`
	State       ReplayState  `json:"state"`
	StateReason *string      `json:"state_reason"` // why it is queued, paused or cancelled
	Source      ReplaySource `json:"source"`
	EndpointID  *string      `json:"endpoint_id"`
	EventType   *string      `json:"event_type"`
	Reason      *string      `json:"reason"`
	Status      *int         `json:"status"`
	Since       Time         `json:"since"`
	Until       Time         `json:"until"`
	EndedSince  Time         `json:"ended_since"`
	EndedUntil  Time         `json:"ended_until"`
	Unmatched   bool         `json:"include_unmatched"`
	Total       *int64       `json:"total"` // deliveries when it was created; nil if they were not counted
	Released    int64        `json:"released"`
	Skipped     int64        `json:"skipped"`                 // not released: endpoint deleted, delivery open, discarded or replayed otherwise
	Delivered   int64        `json:"delivered"`               // by the first attempt
	Failed      int64        `json:"failed"`                  // the first attempt failed; they are retried
	Rate        int          `json:"rate_per_minute"`         // that was asked for
	CurrentRate int          `json:"current_rate_per_minute"` // in force
	Ramp        bool         `json:"ramp"`
	CreatedAt   Time         `json:"created_at"`
	CompletedAt Time         `json:"completed_at"`
	WorkflowID  string       `json:"workflow_id"`
	WorkflowURL *string      `json:"workflow_url"` // in the Temporal Web UI; nil if the caller may not see it
}

// ReplayPreview is how many deliveries a replay would send.
type ReplayPreview struct {
	Total *int64 `json:"total"` // nil if counting takes too long
}

// ReplayInput is a new replay. What is zero is not compared.
type ReplayInput struct {
	Source        ReplaySource `json:"source"`
	EndpointID    string       `json:"endpoint_id,omitzero"` // required for ReplayEvents, as Since is
	EventType     string       `json:"event_type,omitzero"`  // a type, or a pattern such as "order.*"
	Reason        string       `json:"reason,omitzero"`      // of dead letters
	Status        int          `json:"status,omitzero"`      // of dead letters
	Since         time.Time    `json:"since,omitzero"`
	Until         time.Time    `json:"until,omitzero"`
	EndedSince    time.Time    `json:"ended_since,omitzero"`       // of dead letters: given up since
	EndedUntil    time.Time    `json:"ended_until,omitzero"`       // and before
	Unmatched     bool         `json:"include_unmatched,omitzero"` // of ReplayEvents: also events whose type the endpoint does not subscribe to
	RatePerMinute int          `json:"rate_per_minute,omitzero"`   // 1 to 60,000; 0 is 100
	Ramp          *bool        `json:"ramp,omitzero"`              // whether the rate rises while deliveries succeed; default true
}

// Replays are the calls about replays. Its workflow carries a command to a replay out a moment after the answer.
type Replays struct{ scope }

// List lists replays.
func (r Replays) List() List[Replay] { return List[Replay]{r.scope, nil} }

// Create starts a replay. While as many run as may, it is queued.
func (r Replays) Create(ctx context.Context, in ReplayInput, o ...Option) (Replay, error) {
	return send[Replay](ctx, r.scope, http.MethodPost, in, o...)
}

// Preview counts what a replay would send.
func (r Replays) Preview(ctx context.Context, in ReplayInput) (ReplayPreview, error) {
	return send[ReplayPreview](ctx, r.at("preview"), http.MethodPost, in)
}

// Get reads a replay.
func (r Replays) Get(ctx context.Context, id string) (Replay, error) {
	return get[Replay](ctx, r.at(id), nil)
}

// SetRate changes the rate of a replay.
func (r Replays) SetRate(ctx context.Context, id string, perMinute int) (Replay, error) {
	return send[Replay](ctx, r.at(id), http.MethodPatch, map[string]int{"rate_per_minute": perMinute})
}

// Pause pauses a replay.
func (r Replays) Pause(ctx context.Context, id string, o ...Option) (Replay, error) {
	return send[Replay](ctx, r.at(id, "pause"), http.MethodPost, nil, o...)
}

// Resume resumes a replay.
func (r Replays) Resume(ctx context.Context, id string, o ...Option) (Replay, error) {
	return send[Replay](ctx, r.at(id, "resume"), http.MethodPost, nil, o...)
}

// Cancel ends a replay. What it has released goes on.
func (r Replays) Cancel(ctx context.Context, id string, o ...Option) (Replay, error) {
	return send[Replay](ctx, r.at(id, "cancel"), http.MethodPost, nil, o...)
}
