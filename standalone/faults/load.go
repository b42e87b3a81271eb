package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/client"
)

const (
	callTimeout = 5 * time.Second
	repostAfter = 50 * time.Millisecond // of an event that was not acknowledged
)

// load runs a plan against an installation.
type load struct {
	plan      *plan
	tenant    string
	apis      []*client.Client
	receivers *receivers
	ledger    *ledger
}

type fields map[string]any

// call sends one request to one of the APIs. The status is 0 if there was no answer.
func (l *load) call(ctx context.Context, turn int, method string, body any, target any, path ...string) (status int, err error) {
	request := client.Request{Method: method, Path: append([]string{"tenants", l.tenant}, path...)}
	if body != nil {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // receivers get the bytes of the payload
		if err := encoder.Encode(body); err != nil {
			return 0, fmt.Errorf("write a request: %w", err)
		}
		request.Body = text.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := l.apis[turn%len(l.apis)].Do(ctx, request)
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		return refused.Status, err
	}
	if err != nil {
		return 0, err
	}
	if target != nil {
		err = json.Unmarshal(answer.Body, target)
	}
	return http.StatusOK, err
}

// prepare makes the tenant and its endpoints.
func (l *load) prepare(ctx context.Context) error {
	if _, err := l.call(ctx, 0, http.MethodPut, fields{"name": l.tenant}, nil); err != nil {
		return fmt.Errorf("make tenant %s: %w", l.tenant, err)
	}
	for i := range endpoints {
		var made client.Endpoint
		if _, err := l.call(ctx, i, http.MethodPost, l.endpoint(i), &made, "endpoints"); err != nil {
			return fmt.Errorf("make endpoint %d: %w", i, err)
		}
		l.ledger.ids[i], l.ledger.secrets[i], l.ledger.endpointOf[made.ID] = made.ID, made.Secret, i
	}
	return nil
}

func (l *load) endpoint(i int) fields {
	delays := schedule()
	texts := make([]string, len(delays))
	for k, d := range delays {
		texts[k] = d.String()
	}
	of := fields{
		"url": l.receivers.url(i) + "/hook", "event_types": []string{eventType(i), eventType(everyone)}, "timeout": requestTimeout.String(),
		"retry_policy": fields{
			"strategy": "schedule", "schedule": texts, "jitter": "none", "max_attempts": maxAttempts, "give_up_after": giveUpAfter.String(),
		},
		"circuit_breaker": fields{"enabled": false}, "auto_disable": false, "auto_replay": false,
	}
	if i == capped {
		of["max_in_flight"] = maxInFlight
	}
	if l.ledger.numbers && isNumbered(i) {
		of["ordering"] = fields{"by": "number"}
	}
	return of
}

// run does all steps, each at its time, and returns when the last one is done.
func (l *load) run(ctx context.Context) {
	begun := time.Now()
	var all sync.WaitGroup
	for turn, s := range l.plan.steps {
		all.Go(func() {
			if pause(ctx, time.Until(begun.Add(s.at))) == nil {
				l.do(ctx, turn, s)
			}
		})
	}
	all.Wait()
}

func (l *load) do(ctx context.Context, turn int, s step) {
	switch s.action {
	case post:
		l.post(ctx, turn, s)
	case cancel, retryNow, replay:
		l.command(ctx, turn, s, "deliveries", nil)
	case reschedule:
		l.command(ctx, turn, s, "deliveries", fields{"at": time.Now().Add(s.delay).UTC().Format(time.RFC3339Nano)})
	case discard:
		l.command(ctx, turn, s, "dead-letters", nil)
	case pauseEndpoint:
		if _, err := l.call(ctx, turn, http.MethodPost, nil, nil, "endpoints", l.ledger.ids[s.endpoint], "pause"); err == nil {
			l.ledger.mu.Lock()
			l.ledger.paused = time.Now()
			l.ledger.mu.Unlock()
		}
	case resumeEndpoint:
		l.resume(ctx, turn, s.endpoint)
	case rotate:
		_, _ = l.call(ctx, turn, http.MethodPost, fields{"grace": "1h"}, nil, "endpoints", l.ledger.ids[s.endpoint], "rotate-secret")
	case change:
		_, _ = l.call(ctx, turn, http.MethodPatch, fields{
			"url": l.receivers.url(s.endpoint) + "/moved", "headers": fields{"X-Changed": "yes"}, "max_in_flight": 20,
		}, nil, "endpoints", l.ledger.ids[s.endpoint])
	case remove:
		l.ledger.mu.Lock()
		l.ledger.removal = true
		l.ledger.mu.Unlock()
		_, _ = l.call(ctx, turn, http.MethodDelete, nil, nil, "endpoints", l.ledger.ids[s.endpoint])
	case replayAll:
		l.ledger.mu.Lock()
		l.ledger.replayed[s.endpoint]++
		l.ledger.mu.Unlock()
		_, _ = l.call(ctx, turn, http.MethodPost, fields{
			"source": "dead_letters", "endpoint_id": l.ledger.ids[s.endpoint], "rate_per_minute": 60_000,
		}, nil, "replays")
	}
}

func (l *load) resume(ctx context.Context, turn, endpoint int) int {
	l.ledger.mu.Lock()
	if l.ledger.resumed.IsZero() {
		l.ledger.resumed = time.Now()
	}
	l.ledger.mu.Unlock()
	status, _ := l.call(ctx, turn, http.MethodPost, fields{"rate_per_minute": 60_000}, nil, "endpoints", l.ledger.ids[endpoint], "resume")
	return status
}

// post posts an event or a batch until it is acknowledged, as a careful backend does: always under the same external ids.
func (l *load) post(ctx context.Context, turn int, s step) {
	kind := eventType(s.endpoint)
	bodies, payloads := make([]fields, s.events), make([]string, s.events)
	for i := range bodies {
		payloads[i] = payload(l.plan.seed, s.event+i, s.size)
		bodies[i] = fields{"type": kind, "payload": json.RawMessage(payloads[i]), "external_id": fmt.Sprintf("%s-%d", l.tenant, s.event+i)}
		if s.delay > 0 {
			bodies[i]["deliver_at"] = time.Now().Add(s.delay).UTC().Format(time.RFC3339Nano)
		} else if key := orderingKey(s.event + i); l.ledger.numbers && key != "" {
			bodies[i]["ordering_key"] = key
		}
	}
	begun := time.Now()
	for ; ctx.Err() == nil; turn++ {
		var (
			one    client.AcceptedEvent
			batch  client.AcceptedBatch
			status int
			err    error
		)
		if s.events == 1 {
			status, err = l.call(ctx, turn, http.MethodPost, bodies[0], &one, "events")
			batch.Events = []client.AcceptedEvent{one}
		} else {
			status, err = l.call(ctx, turn, http.MethodPost, fields{"events": bodies}, &batch, "events", "batch")
		}
		if err == nil && len(batch.Events) == s.events {
			for i, e := range batch.Events {
				l.ledger.acknowledge(s.event+i, kind, payloads[i], e)
				l.ledger.noted(s.event+i, posted{begun, time.Now(), s.event})
			}
			return
		}
		switch status {
		case 0, http.StatusConflict, http.StatusServiceUnavailable, http.StatusTooManyRequests: // no answer; the try before is under way; later
		default:
			l.ledger.problemf("event %d was answered with %d: %v", s.event, status, err)
			return
		}
		_ = pause(ctx, repostAfter)
	}
}

// payload is an event's. Every seed and number has its own, of another size.
func payload(seed uint64, number, size int) string {
	return fmt.Sprintf(`{"seed":%d,"number":%d,"pad":%q}`, seed, number, strings.Repeat("é<&>", number%50)+strings.Repeat("x", size))
}

// command sends one command to a delivery, if its event has been acknowledged by now. It is not repeated.
func (l *load) command(ctx context.Context, turn int, s step, resource string, body any) {
	p := l.ledger.of(s.event, s.endpoint)
	if p == nil {
		return
	}
	answered := l.ledger.asked(p, s.action)
	_, err := l.call(ctx, turn, http.MethodPost, body, nil, resource, p.delivery, s.action.String())
	answered(err == nil)
}

// settle lets all go on that the load has stopped: a pause, or a resume, may have had no answer.
func (l *load) settle(ctx context.Context) error {
	for turn := 0; ctx.Err() == nil; turn++ {
		if l.resume(ctx, turn, paused) == http.StatusOK {
			return nil
		}
		_ = pause(ctx, repostAfter)
	}
	return fmt.Errorf("resume the paused endpoint: %w", context.Cause(ctx))
}

// pause waits. Its error is ctx's.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
