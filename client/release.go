package client

import (
	"context"
	"net/http"
)

// ReleaseState is the state of a release.
type ReleaseState string

// The states of releases.
const (
	ReleaseRunning ReleaseState = "running"
	ReleaseStopped ReleaseState = "stopped" // by a person, or because the endpoint is paused or disabled
	ReleaseDone    ReleaseState = "done"    // nothing is held
)

// Release is the release of an endpoint's held deliveries.
type Release struct {
	EndpointID    string       `json:"endpoint_id"`
	State         ReleaseState `json:"state"`
	RatePerMinute *int         `json:"rate_per_minute"` // the most; nil if Everpost sets the pace
	Total         *int64       `json:"total"`           // nil until the deliveries are counted, and if no person has begun the release
	Released      int64        `json:"released"`
	Remaining     *int64       `json:"remaining"`  // Total less Released
	StartedAt     Time         `json:"started_at"` // null if nothing was ever held
}

// ReleaseChange changes a release. What is zero stays as it is.
type ReleaseChange struct {
	State         ReleaseState `json:"state,omitzero"`           // ReleaseRunning or ReleaseStopped
	RatePerMinute int          `json:"rate_per_minute,omitzero"` // 1 to 60,000
}

// Release reads the release of an endpoint's held deliveries.
func (e Endpoints) Release(ctx context.Context, id string) (Release, error) {
	return get[Release](ctx, e.at(id, "release"), nil)
}

// ChangeRelease stops a release, lets it go on or changes its rate. CodeConflict: the endpoint is not active.
func (e Endpoints) ChangeRelease(ctx context.Context, id string, change ReleaseChange) (Release, error) {
	return send[Release](ctx, e.at(id, "release"), http.MethodPatch, change)
}

// ResetReleaseRate lets Everpost set the pace of a release. CodeConflict: the endpoint is not active.
func (e Endpoints) ResetReleaseRate(ctx context.Context, id string) (Release, error) {
	return send[Release](ctx, e.at(id, "release"), http.MethodPatch, map[string]any{"rate_per_minute": nil})
}
