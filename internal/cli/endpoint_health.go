package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/printable"
)

// health is the part of the API's endpoint health that a table shows.
type health struct {
	explained

	State   string  `json:"state"`
	Why     *string `json:"state_reason"`
	Circuit struct {
		State string     `json:"state"`
		Since *time.Time `json:"since"`
		Why   *string    `json:"why"`
	} `json:"circuit"`
	NextProbeAt   *time.Time `json:"next_probe_at"`
	DeferredUntil *time.Time `json:"deferred_until"`
	DeferredFor   *string    `json:"deferred_for"`
	Rate          float64    `json:"rate_per_second"`
	Timeout       *string    `json:"timeout"`
	LatencyMS     *int64     `json:"latency_ms"`
	SuccessRate   *float64   `json:"success_rate"`
	RetryRatio    *float64   `json:"retry_ratio"`
	SuccessStreak int        `json:"success_streak"`
	FailureStreak int        `json:"failure_streak"`
	InFlight      int        `json:"in_flight"`
	Waiting       int        `json:"waiting"`
	Retrying      int        `json:"retrying"`
	Deferred      int        `json:"deferred"`
	Scheduled     int        `json:"scheduled"`
	Held          int        `json:"held"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	Oldest        *time.Time `json:"oldest_waiting_at"`
}

// rows returns the table; rows of optional values are left out when there is none.
func (h health) rows() [][2]string {
	rows := [][2]string{
		{"state", withReason(h.State, h.Why)},
		{"circuit", withReason(h.Circuit.State, h.Circuit.Why)},
	}
	add := func(name string, at *time.Time, why *string) {
		if at != nil {
			rows = append(rows, [2]string{name, withReason(formatTime(*at), why)})
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
		[2]string{"rate", explain.PerSecond(h.Rate)},
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
	add("oldest waiting since", h.Oldest, nil)
	return rows
}

func withReason(text string, why *string) string {
	if why == nil {
		return text
	}
	return text + " (" + *why + ")"
}

// EndpointsHealthCommand shows an endpoint's health.
type EndpointsHealthCommand struct {
	oneEndpoint `embed:""`
}

// Run prints the summary, then the table.
func (c *EndpointsHealthCommand) Run(ctx context.Context, p Process) error {
	return readable(ctx, p, c, c.newRequest(http.MethodGet, "health", nil), func(s *session, _ []byte, h health) error {
		return s.explain(h.explained, h.rows())
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
	made, err := client.Decode[struct {
		attempt

		Decision string `json:"decision"`
	}](a)
	if err != nil {
		return err
	}
	if !s.json {
		if err := s.line(printable.Text(made.summary()) + "\n"); err != nil {
			return err
		}
	}
	if err := s.show(a); err != nil {
		return err
	}
	if made.Decision != "delivered" {
		words := made.summary()
		if made.Error != nil {
			words += ": " + *made.Error
		}
		return errors.New("the receiver did not accept: " + printable.Text(words))
	}
	return nil
}
