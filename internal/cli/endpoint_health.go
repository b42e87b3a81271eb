package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/printable"
)

// healthRows returns the table; rows of optional values are left out when there is none.
func healthRows(h client.EndpointHealth) [][2]string {
	why := h.Circuit.Why
	if why != nil {
		why = new(explain.WhyOpen(*why))
	}
	rows := [][2]string{
		{"state", withReason(string(h.State), h.StateReason)},
		{"circuit", withReason(string(h.Circuit.State), why)},
	}
	add := func(name string, at client.Time, why *string) {
		if !at.IsZero() {
			rows = append(rows, [2]string{name, withReason(formatTime(at.Time), why)})
		}
	}
	add("circuit since", h.Circuit.Since, nil)
	add("next probe", h.NextProbeAt, nil)
	add("deferred until", h.DeferredUntil, h.DeferredFor)
	timeout := "-"
	if h.Timeout != nil {
		timeout = *h.Timeout
	}
	took := "-"
	if h.LatencyMS != nil {
		took = strconv.FormatInt(*h.LatencyMS, 10) + " ms"
	}
	delivered := "-"
	if h.SuccessRate != nil {
		delivered = strconv.FormatFloat(*h.SuccessRate*100, 'f', 1, 64) + " %"
	}
	retries := "-"
	if h.RetryRatio != nil {
		retries = strconv.FormatFloat(*h.RetryRatio, 'f', 2, 64)
	}
	rows = append(rows,
		[2]string{"rate", explain.PerSecond(h.RatePerSecond)},
		[2]string{"timeout", timeout},
		[2]string{"latency", took},
		[2]string{"delivered, 15 min", delivered},
		[2]string{"retries per first attempt", retries},
		[2]string{"in a row", fmt.Sprintf("%d delivered, %d failed", h.SuccessStreak, h.FailureStreak)},
		[2]string{"in flight", strconv.Itoa(h.InFlight)},
		[2]string{"waiting", fmt.Sprintf("%d (%d to be sent again, %d for a turn)", h.Waiting, h.Retrying, h.Deferred)},
		[2]string{"scheduled", strconv.Itoa(h.Scheduled)},
		[2]string{"held", strconv.Itoa(h.Held)},
	)
	add("next attempt", h.NextAttemptAt, nil)
	add("oldest waiting since", h.OldestWaiting, nil)
	return rows
}

func withReason(text string, why *string) string {
	if why == nil {
		return text
	}
	return text + " (" + *why + ")"
}

// EndpointsAttemptsCommand lists attempts.
type EndpointsAttemptsCommand struct {
	oneEndpoint `embed:""`
	paging      `embed:""`
}

// Run lists them.
func (c *EndpointsAttemptsCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "attempts", c.newRequest(http.MethodGet, "attempts", nil), c.paging, deliveryAttemptColumns())
}

// EndpointsHealthCommand shows an endpoint's health.
type EndpointsHealthCommand struct {
	oneEndpoint `embed:""`
}

// Run prints the summary, then the table.
func (c *EndpointsHealthCommand) Run(ctx context.Context, p Process) error {
	return readable(ctx, p, c, c.newRequest(http.MethodGet, "health", nil), func(s *session, _ []byte, h client.EndpointHealth) error {
		return s.explain(explained{Summary: h.Summary, Explanation: &h.Explanation}, healthRows(h))
	})
}

// EndpointsTestCommand sends a test request to an endpoint.
type EndpointsTestCommand struct {
	oneEndpoint `embed:""`

	Type    string `help:"The event type of the request; everpost.test without it." placeholder:"TYPE"`
	Payload source `help:"The payload: JSON, @file, or - for standard input; {\"test\":true} without it." placeholder:"JSON"`
}

// Run sends the request and prints the response. It returns an error when the receiver does
// not accept the request.
func (c *EndpointsTestCommand) Run(ctx context.Context, p Process) error {
	var payload []byte
	if c.Payload != "" {
		var err error
		if payload, err = c.Payload.read(p, "--payload"); err != nil {
			return err
		}
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	a, err := s.do(ctx, c.newRequest(http.MethodPost, "test", withPayload(object(map[string]any{"type": c.Type}), payload)))
	if err != nil {
		return err
	}
	made, err := decode[client.Attempt](a)
	if err != nil {
		return err
	}
	if !s.json {
		if err := s.line(printable.Text(summary(made)) + "\n"); err != nil {
			return err
		}
	}
	if err := s.show(a); err != nil {
		return err
	}
	if made.Decision != client.DecisionDelivered {
		words := summary(made)
		if made.Error != nil {
			words += ": " + *made.Error
		}
		return errors.New("the receiver did not accept: " + printable.Text(words))
	}
	return nil
}
