package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// post is an event that was accepted.
type post struct {
	event string        // its id
	due   time.Duration // when it was due
}

// flow posts events at a fixed rate, independent of responses.
type flow struct {
	rate  float64
	lasts time.Duration
	stop  <-chan struct{}                                         // ends it early; may be nil
	one   func(ctx context.Context, i int) (id string, err error) // posts event i
}

// run posts the events and returns when all were accepted. Event i is due at i ÷ rate, and
// its latency counts from then: a stall delays many events and is not hidden by posting
// fewer.
func (l *lab) run(ctx context.Context, f flow) ([]post, error) {
	const connections = 64
	n := int(f.rate * f.lasts.Seconds())
	all := make([]post, n)
	group, ctx := errgroup.WithContext(ctx)
	began := l.since()
	var next atomic.Int64
	for range min(connections, n) {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				due := began + time.Duration(float64(i)/f.rate*float64(time.Second))
				if stopped, err := l.until(ctx, due, f.stop); stopped || err != nil {
					return err
				}
				id, err := f.one(ctx, i)
				if err != nil {
					return err
				}
				all[i] = post{id, due}
			}
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(all, func(p post) bool { return p.event == "" }), err
}

// until waits until a time, or for the end of a flow.
func (l *lab) until(ctx context.Context, at time.Duration, stop <-chan struct{}) (stopped bool, err error) {
	timer := time.NewTimer(at - l.since())
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-stop:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// concurrently runs functions concurrently and returns when all have ended.
func concurrently(ctx context.Context, all ...func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range all {
		group.Go(func() error { return f(ctx) })
	}
	return group.Wait() //nolint:wrapcheck // the functions' errors
}

// creators is over how many connections endpoints are made, paused and so on.
const creators = 16

// forEach calls a function with 0 to n-1, concurrently.
func forEach(ctx context.Context, n int, one func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		group.Go(func() error { return one(ctx, i) })
	}
	return group.Wait() //nolint:wrapcheck // the function's errors
}

func tenantPath(tenant, rest string) string { return "/v1/tenants/" + tenant + rest }

func (p *place) tenant(ctx context.Context, name string) error {
	_, err := p.API.Send(ctx, http.MethodPut, tenantPath(name, ""), []byte(`{}`), nil, http.StatusCreated)
	return err
}

// fields are the fields of a JSON object.
type fields map[string]any

// endpoint creates an endpoint and returns its id.
func (p *place) endpoint(ctx context.Context, tenant string, all fields) (string, error) {
	body, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("make an endpoint: %w", err)
	}
	var made struct {
		ID string `json:"id"`
	}
	_, err = p.API.Send(ctx, http.MethodPost, tenantPath(tenant, "/endpoints"), body, &made, http.StatusCreated)
	return made.ID, err
}

// eventBody is an event with a payload of about 1 KiB.
func eventBody(kind string, i int) string {
	return fmt.Sprintf(`{"type":%q,"payload":{"n":%d,"p":%q}}`, kind, i, strings.Repeat("everpost", 125))
}

// poster posts events of a type, one per request.
func (p *place) poster(tenant, kind string) func(ctx context.Context, i int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		var made struct {
			ID string `json:"id"`
		}
		_, err := p.API.SendWhenReady(ctx, http.MethodPost, tenantPath(tenant, "/events"), []byte(eventBody(kind, i)), &made, http.StatusAccepted)
		return made.ID, err
	}
}

// batchSize is the API's maximum for one request.
const batchSize = 100

// burst posts n events of a type as fast as the API accepts them, over that many
// connections.
func (p *place) burst(ctx context.Context, tenant, kind string, n, connections int) ([]post, error) {
	all := make([]post, n)
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range connections {
		group.Go(func() error {
			for {
				first := int(next.Add(batchSize)) - batchSize
				if first >= n {
					return nil
				}
				if err := p.batch(ctx, tenant, kind, first, all[first:min(first+batchSize, n)]); err != nil {
					return err
				}
			}
		})
	}
	return all, group.Wait() //nolint:wrapcheck // the senders' errors
}

// batch posts as many events as into has room for.
func (p *place) batch(ctx context.Context, tenant, kind string, first int, into []post) error {
	bodies := make([]string, len(into))
	for i := range into {
		bodies[i] = eventBody(kind, first+i)
	}
	due := p.lab.since()
	var made struct {
		Events []struct {
			ID string `json:"id"`
		} `json:"events"`
	}
	body := []byte(`{"events":[` + strings.Join(bodies, ",") + `]}`)
	_, err := p.API.SendWhenReady(ctx, http.MethodPost, tenantPath(tenant, "/events/batch"), body, &made, http.StatusAccepted)
	if err != nil {
		return err
	}
	for i, e := range made.Events {
		into[i] = post{e.ID, due}
	}
	return nil
}

// action is a POST such as pause or resume.
func (p *place) action(ctx context.Context, path, body string) error {
	_, err := p.API.Send(ctx, http.MethodPost, path, []byte(body), nil, http.StatusOK)
	return err
}
