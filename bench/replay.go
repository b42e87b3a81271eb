package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// replay measures one replay of many dead letters at the highest rate that a replay may have, 1,000/s. Its CPU per delivery compares with that of
// batch, which posts new events. Profiles are taken meanwhile and cost time: a replay cannot be repeated.
func replay(ctx context.Context, b *bench) (_ []row, err error) {
	in, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	dead, err := b.deadLetters(ctx, in)
	if err != nil {
		return nil, err
	}
	w := work{name: "replay", events: b.size.replayed, endpoints: 1, about: "dead letters in one replay, rate 60,000 per minute, no ramp"}
	l := b.newLedger(w)
	defer b.receiver.close(l)
	if err := in.api.changeEndpoint(ctx, dead, map[string]any{"url": b.receiver.url(l, 0)}); err != nil {
		return nil, err
	}
	if err := b.settle(ctx, in); err != nil { // each dead letter has got its workflow
		return nil, err
	}
	taken, err := b.takeProfiles(ctx, in, w.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, taken.Wait()) }()
	m := startMeter(in.Pid())
	l.began = time.Now()
	if err := in.api.replay(ctx, dead); err != nil {
		return nil, err
	}
	for i := range l.accepted {
		l.accepted[i] = l.since() // together, by one answer
	}
	if err := l.wait(ctx, b.size.stall, b.size.patience); err != nil {
		return nil, err
	}
	if err := installation.Pause(ctx, b.size.linger); err != nil {
		return nil, err
	}
	f := l.figures()
	m.stop(f, w.deliveries())
	return []row{{w.name, w.describe(), f}}, nil
}

// deadLetters makes an endpoint with dead letters, and returns its id.
func (b *bench) deadLetters(ctx context.Context, in *instance) (endpoint string, err error) {
	l, err := b.post(ctx, in, work{
		name: "dying", events: b.size.replayed, endpoints: 1, connections: 16, batch: batchSize, fails: always,
		settings: map[string]any{
			"retry_policy":    map[string]any{"strategy": "fixed", "base": "1s", "jitter": "none", "max_attempts": 1},
			"circuit_breaker": map[string]any{"enabled": false},
			"auto_disable":    false,
		},
	})
	if err != nil {
		return "", err
	}
	defer b.receiver.close(l)
	endpoint = l.endpointIDs[0]
	end := time.Now().Add(b.size.patience)
	for {
		n, err := in.api.count(ctx, endpoint, 1, "pending", "retrying", "held")
		if err != nil || n == 0 {
			return endpoint, err
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("some deliveries are no dead letters %s after their only attempt", b.size.patience)
		}
		if err := installation.Pause(ctx, 10*pollInterval); err != nil {
			return "", err
		}
	}
}

// changeEndpoint changes an endpoint.
func (c client) changeEndpoint(ctx context.Context, id string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("change an endpoint: %w", err)
	}
	_, err = c.Send(ctx, http.MethodPatch, path("/endpoints/"+id), body, nil, http.StatusOK)
	return err
}

// replay begins a replay of the dead letters of an endpoint.
func (c client) replay(ctx context.Context, endpoint string) error {
	body, err := json.Marshal(map[string]any{"source": "dead_letters", "endpoint_id": endpoint, "rate_per_minute": 60_000, "ramp": false})
	if err != nil {
		return fmt.Errorf("begin a replay: %w", err)
	}
	_, err = c.Send(ctx, http.MethodPost, path("/replays"), body, nil, http.StatusAccepted, http.StatusCreated)
	return err
}
