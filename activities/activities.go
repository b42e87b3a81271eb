// Package activities is what a delivery's workflow has done outside of it: the
// signed POST with its record, and the few steps that are only recorded.
//
// A receiver's refusal is a value; an error means that we could not find out, and
// counts as no attempt.
package activities

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Store is where deliveries stand. See docs/adr/0003, store and engine.
type Store interface {
	// Begin takes the right to send an attempt and reads what sending it needs.
	Claim(ctx context.Context, c webhook.Claim) (webhook.ClaimResult, error)
	// Record writes one step; the standing it returns rules.
	RecordStep(ctx context.Context, s webhook.Step) (webhook.DeliveryStatus, error)
	// Reopen opens the next run of a dead letter.
	Reopen(ctx context.Context, ref webhook.Ref, reason string) (webhook.DeliveryStatus, error)
}

// Targets finds an endpoint with its secrets; CodeNotFound when it was deleted.
type Targets interface {
	Target(ctx context.Context, id webhook.EndpointID) (*webhook.Target, error)
	// Known is Target for one that is in memory; it asks nobody.
	Known(id webhook.EndpointID) (*webhook.Target, bool)
}

// Fresh hands out, once each, the payloads of events that this process has just
// stored, with the SHA-256 of each when it arrived: whoever gets one may send the
// first attempt without asking the record.
type Fresh interface {
	Take(id webhook.DeliveryID) (content webhook.Content, ok bool)
}

// Sender makes one POST. A failure is a value.
type Sender interface {
	Send(ctx context.Context, r Request) Response
}

// Request is one POST to an endpoint.
type Request struct {
	Target  *webhook.Target
	Header  [][2]string
	Body    []byte
	Timeout time.Duration
}

// Response is what it came to.
type Response struct {
	Answer    retry.Answer
	Latency   time.Duration
	Header    map[string][]string
	Body      []byte // ≤ 16 KiB
	Truncated bool
	Err       string // class and cause of Answer.Fault, without any part of the URL
	OwnFault  bool   // it ended because of us: nothing is known of the receiver
}

// Observer is told of attempts, for metrics. Its methods must be cheap.
type Observer interface {
	Attempted(ref webhook.Ref, a *webhook.Attempt, p webhook.Progress)
	// TurnedAway: the gate let a delivery wait, for the reason.
	TurnedAway(reason string)
	Faulted(err error)
}

// Config is what the activities need.
type Config struct {
	Store    Store
	Targets  Targets
	Fresh    Fresh
	Sender   Sender
	Gate     Gate // nil: everybody goes at once
	Starter  Starter
	Faults   Faults // nil: none is remembered
	Replays  Replays
	Observer Observer // may be nil
	// Ended is told of deliveries that came to rest without an attempt, now and then twice.
	// It must be cheap, and may be nil.
	Ended  func(ref webhook.Ref, p webhook.Progress)
	Logger *slog.Logger
	Owner  string // names this process in claims; unique among processes

	// FastWait is how long a workflow task waits for a receiver, and up to
	// another where the gate is slow. Defaults to 1 s.
	FastWait time.Duration
	// MaxUnderWay bounds the requests under way. Defaults to 4,000.
	MaxUnderWay int
	// KeepDeadLetters is how long a dead letter is kept. Defaults to 30 days.
	KeepDeadLetters time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Activities are the activities of a worker. Requests that are slow go on between
// two activities, so there is one for the whole process; Stop it last.
type Activities struct {
	Config

	flights flights
	crew    *crew           // who makes them
	slow    *fair.Semaphore // requests to slow receivers: half of all that may be under way
	eager   *fair.Semaphore // eager requests
	away    outage          // of the record
	base    context.Context //nolint:containedctx // the life of requests that outlive their activity; ended by Stop
	cancel  context.CancelFunc
}

// New returns the activities; call Stop when the worker has stopped.
func New(c Config) *Activities {
	if c.FastWait == 0 {
		c.FastWait = time.Second
	}
	if c.MaxUnderWay == 0 {
		c.MaxUnderWay = 4000
	}
	if c.KeepDeadLetters == 0 {
		c.KeepDeadLetters = 30 * 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Faults == nil {
		c.Faults = noFaults{}
	}
	a := &Activities{
		Config: c, flights: newFlights(c.MaxUnderWay, rememberedFlights),
		slow: fair.NewDynamic(max(c.MaxUnderWay/2, 1), 1), eager: fair.NewDynamic(maxEager, 1),
	}
	a.base, a.cancel = context.WithCancel(context.Background())
	a.crew = newCrew(a.base.Done())
	return a
}

// Stop waits for the requests under way and their records until ctx ends, then
// cuts them off: an attempt that was cut off is made again elsewhere. Attempts that
// are asked for from now on are refused with an error.
func (a *Activities) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		a.flights.close()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		a.cancel()
		<-done
	}
	a.cancel()
	a.crew.members.Wait()
}
