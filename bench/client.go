package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/everpost/everpost/bench/internal/installation"
)

// client calls the HTTP API.
type client struct{ *installation.Client }

// tenant owns all events.
const tenant = "bench"

// path returns an address below the tenant.
func path(rest string) string { return "/v1/tenants/" + tenant + rest }

// putTenant creates the tenant.
func (c client) putTenant(ctx context.Context) error {
	_, err := c.Send(ctx, http.MethodPut, path(""), []byte(`{"name":"Benchmark"}`), nil, http.StatusCreated, http.StatusOK)
	return err
}

// addEndpoint creates an endpoint for one event type and returns its id.
func (c client) addEndpoint(ctx context.Context, address, eventType string, further map[string]any) (string, error) {
	fields := map[string]any{"url": address, "event_types": []string{eventType}}
	maps.Copy(fields, further)
	body, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("make an endpoint: %w", err)
	}
	var made struct {
		ID string `json:"id"`
	}
	_, err = c.Send(ctx, http.MethodPost, path("/endpoints"), body, &made, http.StatusCreated)
	return made.ID, err
}

// count returns how many deliveries of an endpoint, or of all, are in one of the states. It
// stops counting at the limit.
func (c client) count(ctx context.Context, endpoint string, limit int, states ...string) (int, error) {
	const page = 250 // the API's largest page
	query := url.Values{"state": states, "limit": {strconv.Itoa(min(limit, page))}}
	if endpoint != "" {
		query.Set("endpoint_id", endpoint)
	}
	n := 0
	for {
		var got struct {
			Data       []json.RawMessage `json:"data"`
			NextCursor *string           `json:"next_cursor"`
		}
		if _, err := c.Send(ctx, http.MethodGet, path("/deliveries?"+query.Encode()), nil, &got, http.StatusOK); err != nil {
			return 0, err
		}
		n += len(got.Data)
		if n >= limit || got.NextCursor == nil {
			return n, nil
		}
		query.Set("cursor", *got.NextCursor)
	}
}

// errNoBatch reports that the API has no …/events/batch.
var errNoBatch = errors.New("this version has no POST …/events/batch")

// postEvents posts a request and repeats it while the API responds with 429 or 503. It
// returns how often it repeated it.
func (c client) postEvents(ctx context.Context, batch bool, body []byte) (refusals int, err error) {
	rest := "/events"
	if batch {
		rest += "/batch"
	}
	refusals, err = c.SendWhenReady(ctx, http.MethodPost, path(rest), body, nil, http.StatusAccepted)
	if failed, ok := errors.AsType[*installation.StatusError](err); ok && batch && failed.Status == http.StatusNotFound {
		return refusals, errNoBatch
	}
	return refusals, err
}
