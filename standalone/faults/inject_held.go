package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// lengthen gives all endpoints a longer timeout, and waits until that is known.
func (s *scene) lengthen(ctx context.Context) error {
	longer := fields{"timeout": claimedTimeout.String()}
	for i, id := range s.load.ledger.ids {
		if _, err := s.load.call(ctx, i, http.MethodPatch, longer, nil, "endpoints", id); err != nil && i != deleted {
			return fmt.Errorf("give endpoint %d a longer timeout: %w", i, err)
		}
	}
	return pause(ctx, claimedAfter)
}

// hangCapped posts events for the capped endpoint, which answers nothing for a time.
func (s *scene) hangCapped(ctx context.Context, hang time.Duration, events int) {
	r := s.receivers.all[capped]
	r.Hold()
	s.window.ready = time.Now().Add(hang)
	time.AfterFunc(hang, r.Release)
	s.load.post(ctx, 0, step{action: post, event: s.load.plan.events, events: events, endpoint: capped})
}

// terminateHeld is terminate while the capped endpoint answers nothing: its lane changes its owner with requests under way.
func terminateHeld(name string) injection {
	return func(ctx context.Context, s *scene) error {
		if err := s.lengthen(ctx); err != nil {
			return err
		}
		s.hangCapped(ctx, heldTime, waitingHeld)
		return terminate(name)(ctx, s)
	}
}

// atHold is atFailpoint where deliveries are held or released: many wait for the capped endpoint, which answers nothing for a while.
func atHold(point string) injection {
	return func(ctx context.Context, s *scene) error {
		s.hangCapped(ctx, hangTime, backlog)
		return reach(point, releaseTime)(ctx, s)
	}
}

// atLargeBody is atFailpoint in the middle of a large request.
func atLargeBody(ctx context.Context, s *scene) error {
	var posts sync.WaitGroup
	defer posts.Wait()
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	posts.Go(func() {
		s.load.post(ctx, 0, step{action: post, event: s.load.plan.events, events: commandable, endpoint: steady, size: largeBody})
	})
	err := atFailpoint(sendMidBody)(ctx, s)
	if err == nil {
		posts.Wait()
	}
	return err
}

// atReplay is atFailpoint where a workflow continues as new: replays are signalled to dead letters, which continue as deliveries.
func atReplay(ctx context.Context, s *scene) error {
	first, l := s.load.plan.events, s.load.ledger
	s.load.post(ctx, 0, step{action: post, event: first, events: commandable, endpoint: refusing})
	if err := pause(ctx, deadAfter); err != nil {
		return err
	}
	signalling, stop := context.WithCancel(ctx)
	var signals sync.WaitGroup
	defer signals.Wait()
	defer stop()
	var ids [][16]byte
	for n := range commandable {
		p := l.of(first+n, refusing)
		if p == nil {
			continue
		}
		event, err := webhook.ParseEventID(p.event)
		if err != nil {
			return fmt.Errorf("read an id: %w", err)
		}
		endpoint, err := webhook.ParseEndpointID(l.ids[refusing])
		if err != nil {
			return fmt.Errorf("read an id: %w", err)
		}
		ids = append(ids, event)
		answered := l.asked(p, replay)
		answered(false) // without an answer it may be ignored, as one to a delivery that was delivered is
		signals.Go(func() { s.signalReplay(signalling, event, endpoint) })
	}
	if err := reach(continueAsNew, releaseTime)(ctx, s); err != nil {
		return err
	}
	return s.awaitReplayed(ctx, ids)
}

// awaitReplayed waits until each delivery of the events has been replayed or delivered: until a workflow has carried out a signal, only
// Temporal knows of it.
func (s *scene) awaitReplayed(ctx context.Context, events [][16]byte) error {
	return s.awaitCount(ctx, restPatience, len(events), "replays that were signalled to workflows",
		"select count(*) from deliveries where event_id = any($1) and (run > 1 or state = $2)", events, webhook.StateDelivered)
}

// awaitCount waits for some time until a query counts so many, and says how many of what are missing.
func (s *scene) awaitCount(ctx context.Context, patience time.Duration, want int, what, sql string, args ...any) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		done := 0
		for done < want && patient.Err() == nil {
			if err := conn.QueryRow(ctx, sql, args...).Scan(&done); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
			_ = pause(patient, leftTick)
		}
		if done < want {
			s.load.ledger.problemf("%d of %d %s were not carried out", want-done, want, what)
		}
		return nil
	})
}

// signalReplay signals a replay by hand to the workflow of a delivery as soon as it keeps dead letters: another one may refuse it.
func (s *scene) signalReplay(ctx context.Context, event webhook.EventID, endpoint webhook.EndpointID) {
	signal := workflows.CommandSignal{DeliveryID: webhook.DeliveryIDOf(event, endpoint)}
	for pause(ctx, signalEvery) == nil {
		var workflow string
		if s.inDatabase(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select workflow_id from deliveries where id = $1", signal.DeliveryID).Scan(&workflow)
		}) != nil {
			continue
		}
		found, err := s.in.engine.DescribeWorkflowExecution(ctx, workflow, "")
		if err != nil || found.GetWorkflowExecutionInfo().GetType().GetName() != workflows.DeadLetterName {
			continue
		}
		if s.in.engine.SignalWorkflow(ctx, workflow, "", workflows.SignalReplay, signal) == nil {
			return
		}
	}
}

// stopClaimed is stop of a worker for longer than Temporal waits for it, but not as long as the claims on its requests last: no other worker
// may send them meanwhile.
func stopClaimed(ctx context.Context, s *scene) error {
	if err := s.lengthen(ctx); err != nil {
		return err
	}
	s.window.until = time.Now() // from then on requests have that timeout
	if err := pause(ctx, claimedAfter); err != nil {
		return err
	}
	return s.held(func() error { // with requests that have no answer
		if err := pause(ctx, claimedAfter); err != nil {
			return err
		}
		s.window.start = time.Now()
		return stop(veryLong, "worker-1")(ctx, s)
	})
}

// stopHeld is stop of a part while its requests have no answer, for longer than their claims last: another process sends them again, and the
// part records their outcomes late.
func stopHeld(name string) injection {
	return func(ctx context.Context, s *scene) error {
		p := s.in.part(name)
		s.window.frozen = true
		err := s.held(func() error {
			return errors.Join(pause(ctx, claimedAfter), p.signal(syscall.SIGSTOP), pause(ctx, claimedAfter))
		})
		return errors.Join(err, pause(ctx, long), p.signal(syscall.SIGCONT))
	}
}

const (
	deadAfter   = time.Second            // for an event to become a dead letter
	onTheirWay  = 300 * time.Millisecond // until deliveries are at their receiver
	signalEvery = 200 * time.Millisecond // until a dead letter has its workflow
	commandable = 8                      // deliveries that get a command
)

// loseSignals cuts the API off from Temporal while commands are given: to dead letters, whose workflows do nothing until they are signalled,
// and to deliveries whose requests have no answer, so that their next step has not seen the command.
func loseSignals(ctx context.Context, s *scene) error {
	first := s.load.plan.events
	s.load.post(ctx, 0, step{action: post, event: first, events: commandable, endpoint: refusing})
	if err := pause(ctx, deadAfter); err != nil {
		return err
	}
	s.receivers.all[flaky].Hold()
	defer s.receivers.all[flaky].Release()
	s.load.post(ctx, 1, step{action: post, event: first + commandable, events: commandable, endpoint: flaky})
	if err := pause(ctx, onTheirWay); err != nil {
		return err
	}
	links := s.in.linksFrom("api>temporal")
	return s.during(ctx, func() error {
		for _, l := range links {
			l.cut()
		}
		for n := range commandable {
			s.load.command(ctx, n, step{action: discard, event: first + n, endpoint: refusing}, "dead-letters", nil)
			s.load.command(ctx, n, step{action: cancel, event: first + commandable + n, endpoint: flaky}, "deliveries", nil)
		}
		s.receivers.all[flaky].Release()
		return nil
	}, func() error {
		var all []error
		for _, l := range links {
			all = append(all, l.restore())
		}
		return errors.Join(all...)
	})
}

const (
	farOff      = time.Hour              // how far ahead deliveries are due that get a command: longer than any run
	soonDue     = 500 * time.Millisecond // until the first attempt of those that fail it
	askedToWait = 5 * time.Minute        // by the receiver then: longer than any run, and less than giveUpAfter
)

// commandWaiting cancels deliveries that are not due yet or wait for a retry, and sends others at once.
func commandWaiting(ctx context.Context, s *scene) error {
	first := s.load.plan.events
	failed := first + 2*commandable
	s.load.post(ctx, 0, step{action: post, event: first, events: 2 * commandable, endpoint: steady, delay: farOff})
	s.load.post(ctx, 1, step{action: post, event: failed, events: 2 * commandable, endpoint: steady, delay: soonDue})
	for n := range 2 * commandable {
		s.receivers.all[steady].Script(s.load.ledger.eventID(failed+n), receivertest.Step{
			Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": strconv.Itoa(int(askedToWait.Seconds()))},
		})
	}
	if err := s.awaitRetrying(ctx, 2*commandable); err != nil {
		return err
	}
	for _, from := range []int{first, failed} {
		for n := range commandable {
			s.load.command(ctx, n, step{action: cancel, event: from + n, endpoint: steady}, "deliveries", nil)
			s.load.command(ctx, n, step{action: retryNow, event: from + commandable + n, endpoint: steady}, "deliveries", nil)
		}
	}
	return nil
}

// awaitRetrying waits until so many deliveries of the tenant wait for a retry for long: a command before their first attempt would be done with it.
func (s *scene) awaitRetrying(ctx context.Context, want int) error {
	return s.inDatabase(ctx, func(conn *pgx.Conn) error {
		for waiting := 0; waiting < want; {
			err := conn.QueryRow(ctx, "select count(*) from deliveries where tenant_id = $1 and state = $2 and due_at > now() + $3::interval",
				s.tenant, webhook.StateRetrying, askedToWait/2).Scan(&waiting)
			if err = errors.Join(err, pause(ctx, leftTick)); err != nil {
				return fmt.Errorf("wait for retries: %w", err)
			}
		}
		return nil
	})
}
