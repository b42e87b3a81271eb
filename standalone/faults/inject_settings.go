package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/webhook"
)

// The classes of an installation that is set up wrongly.

const (
	pooled         = "pooled-" // the prefix of the classes of a pooler
	poolerSessions = 4         // fewer than a process has connections
	refusalTime    = 30 * time.Second
)

// behindPooler restarts a part with a pooler in transaction mode before PostgreSQL, which it refuses in words, and then without.
func behindPooler(name string) injection {
	return func(ctx context.Context, s *scene) error {
		pooling, stop := context.WithCancel(ctx)
		defer stop()
		at, err := s.in.databaseURL(localpg.Database)
		if err != nil {
			return err
		}
		server, err := pgx.ParseConfig(at)
		if err != nil {
			return fmt.Errorf("read the database's address: %w", err)
		}
		postmaster, err := s.in.postmaster()
		if err != nil {
			return err
		}
		pooler := programtest.PgBouncer{
			Program: pgBouncer(), Dir: s.in.home, Server: fmt.Sprintf("/proc/%d", postmaster), Host: server.Host, Port: server.Port, Database: server.Database,
			User: server.User, Mode: "transaction", Sessions: poolerSessions,
		}
		address, ended, err := pooler.Start(pooling)
		defer func() {
			stop()
			if ended != nil {
				<-ended
			}
		}()
		if err != nil {
			return err
		}
		p := s.in.part(name)
		if err := p.stop(); err != nil {
			return err
		}
		patient, cancel := context.WithTimeout(ctx, refusalTime)
		defer cancel()
		through := processtest.Settings{"EVERPOST_DATABASE_URL": "postgres://everpost@" + address + "/" + localpg.Database + "?sslmode=disable"}
		done, err := processtest.Run(patient, p.program, p.env.With(through), p.args...)
		if err != nil || done.Code == 0 || !strings.Contains(done.Stderr, "a pooler in transaction mode") {
			s.load.ledger.problemf("%s behind a pooler ended with %d: %v %s", name, done.Code, err, done.Stderr)
		}
		return p.restart(ctx)
	}
}

// pgBouncer is the path of PgBouncer; "" if it is not installed.
func pgBouncer() string {
	path, _ := programtest.Look("pgbouncer")
	return path
}

// lanesUnreachable is the class of cutLanes.
const lanesUnreachable = "lanes-unreachable"

const (
	unreachableTime  = 100 * time.Second // for five deferrals, and until the owner happens to be the worker that takes the attempt
	unreachableEvent = 12                // posted meanwhile, to each endpoint
)

// cutLanes lets no process reach another that owns lanes, as if each had given an address that is only its own. They renew their leases. What
// belongs to the lanes of another process is delivered all the same.
func cutLanes(ctx context.Context, s *scene) error {
	links := s.in.linksFrom("lanes>")
	for _, l := range links {
		l.cut()
	}
	first := s.load.plan.events
	s.load.post(ctx, 0, step{action: post, event: first, events: unreachableEvent, endpoint: everyone})
	all := []error{s.awaitDelivered(ctx, first, unreachableEvent)}
	for _, l := range links {
		all = append(all, l.restore())
	}
	return errors.Join(all...)
}

// awaitDelivered waits until the deliveries of some events to the endpoint that answers 200 are delivered.
func (s *scene) awaitDelivered(ctx context.Context, first, events int) error {
	endpoint, err := webhook.ParseEndpointID(s.load.ledger.ids[steady])
	if err != nil {
		return fmt.Errorf("read an id: %w", err)
	}
	var ids [][16]byte
	for n := range events {
		if p := s.load.ledger.of(first+n, steady); p != nil {
			id, err := webhook.ParseEventID(p.event)
			if err != nil {
				return fmt.Errorf("read an id: %w", err)
			}
			ids = append(ids, id)
		}
	}
	if len(ids) < events {
		s.load.ledger.problemf("%d of %d events were not accepted while no owner of lanes could be reached", events-len(ids), events)
	}
	return s.awaitCount(ctx, unreachableTime, len(ids), "deliveries while no owner of lanes could be reached",
		"select count(*) from deliveries where event_id = any($1) and endpoint_id = $2 and state = $3", ids, endpoint, webhook.StateDelivered)
}
