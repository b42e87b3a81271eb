package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

const (
	releaseManyName = "release-many"
	releaseOneName  = "release-one"
	replaysName     = "replays"
)

const (
	crowd, crowdKind = "crowd", "a.crowd" // the tenant with the backlog, and the type of its events
	crowdShare       = 0.5                // allowed increase of the other tenant's p99
	heldEach         = 40                 // held deliveries of each endpoint in release-many
	deadEach         = 10                 // dead letters of each endpoint in replays
)

// backlog is a tenant's endpoints with deliveries that wait, all at one receiver, beside another tenant with a steady flow.
type backlog struct {
	*place

	endpoints []string
	waiting   int // deliveries
	at, quiet *receiver
}

// releaseMany: many endpoints of one tenant with held deliveries are resumed at once.
func releaseMany(ctx context.Context, l *lab, r *report) error {
	return releaseBeside(ctx, l, r, l.size.released, heldEach, `{}`)
}

// releaseOne: one endpoint with very many held deliveries is resumed, at the highest rate.
func releaseOne(ctx context.Context, l *lab, r *report) error {
	return releaseBeside(ctx, l, r, 1, l.size.heldOfOne, `{"rate_per_minute":60000}`)
}

func releaseBeside(ctx context.Context, l *lab, r *report, endpoints, each int, resume string) (err error) {
	b, err := l.crowd(ctx, answers, endpoints)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.End()) }()
	if err := b.onEach(ctx, func(ctx context.Context, path string) error { return b.action(ctx, path+"/pause", `{}`) }); err != nil {
		return err
	}
	if err := b.fill(ctx, each, "held"); err != nil {
		return err
	}
	return b.beside(ctx, r, func(ctx context.Context) error {
		return b.onEach(ctx, func(ctx context.Context, path string) error { return b.action(ctx, path+"/resume", resume) })
	})
}

// replays: one tenant requests a replay for each of many endpoints with dead letters.
func replays(ctx context.Context, l *lab, r *report) (err error) {
	b, err := l.crowd(ctx, refuses, l.size.replays)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.End()) }()
	if err := b.fill(ctx, deadEach, "dead_lettered"); err != nil {
		return err
	}
	b.at.become(answers, 0)
	return b.beside(ctx, r, func(ctx context.Context) error {
		return forEach(ctx, len(b.endpoints), func(ctx context.Context, i int) error {
			body := fmt.Sprintf(`{"source":"dead_letters","endpoint_id":%q,"rate_per_minute":1000}`, b.endpoints[i])
			_, err := b.API.Send(ctx, http.MethodPost, tenantPath(crowd, "/replays"), []byte(body), nil, http.StatusAccepted)
			return err
		})
	})
}

// crowd returns a new installation with that many endpoints of one tenant at one receiver, and one of another tenant.
func (l *lab) crowd(ctx context.Context, m manner, endpoints int) (b *backlog, err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return nil, err
	}
	b = &backlog{place: in, endpoints: make([]string, endpoints)}
	if err := b.settle(ctx, m); err != nil {
		return nil, errors.Join(err, in.End())
	}
	return b, nil
}

func (b *backlog) settle(ctx context.Context, m manner) (err error) {
	if b.at, err = b.receive(ctx, m); err != nil {
		return err
	}
	if err := b.tenant(ctx, crowd); err != nil {
		return err
	}
	if err := b.tenant(ctx, "acme"); err != nil {
		return err
	}
	if b.quiet, _, err = b.against(ctx, answers, "a.few", fields{}); err != nil {
		return err
	}
	if err := b.warmUp(ctx, "acme", "a.few"); err != nil {
		return err
	}
	return forEach(ctx, len(b.endpoints), func(ctx context.Context, i int) (err error) {
		b.endpoints[i], err = b.endpoint(ctx, crowd, fields{"url": b.at.base, "event_types": []string{crowdKind}, "auto_disable": false})
		return err
	})
}

func (b *backlog) onEach(ctx context.Context, do func(ctx context.Context, path string) error) error {
	return forEach(ctx, len(b.endpoints), func(ctx context.Context, i int) error {
		return do(ctx, tenantPath(crowd, "/endpoints/"+b.endpoints[i]))
	})
}

// fill posts events that each go to all endpoints, and waits until their deliveries are in a state.
func (b *backlog) fill(ctx context.Context, each int, state string) error {
	b.waiting = each * len(b.endpoints)
	b.lab.sayf("%d deliveries of %d endpoints become %s", b.waiting, len(b.endpoints), state)
	if err := b.postAll(ctx, each); err != nil {
		return err
	}
	var failed error
	filled, err := wait(ctx, b.lab.size.patience, func() bool {
		var open int
		open, failed = b.open(ctx, state)
		return failed != nil || open == 0
	})
	if err = errors.Join(err, failed); err == nil && !filled {
		err = fmt.Errorf("not all deliveries are %s after %s", state, b.lab.size.patience)
	}
	return err
}

// postAll posts events, in batches if each goes to one endpoint only: the API bounds the deliveries of a request.
func (b *backlog) postAll(ctx context.Context, n int) error {
	if len(b.endpoints) == 1 {
		_, err := b.burst(ctx, crowd, crowdKind, n, burstConns)
		return err
	}
	post := b.poster(crowd, crowdKind)
	return forEach(ctx, n, func(ctx context.Context, i int) error {
		_, err := post(ctx, i)
		return err
	})
}

// open counts deliveries that are in none of the states that they are to be in, up to a page of them.
func (b *backlog) open(ctx context.Context, state string) (n int, err error) {
	for _, other := range []string{"pending", "retrying", "held", "dead_lettered"} {
		if other == state {
			continue
		}
		var page struct {
			Data []struct{} `json:"data"`
		}
		if _, err := b.API.Send(ctx, http.MethodGet, tenantPath(crowd, "/deliveries?limit=1&state="+other), nil, &page, http.StatusOK); err != nil {
			return 0, err
		}
		n += len(page.Data)
	}
	return n, nil
}

// beside measures the flow of the other tenant alone, and while the deliveries that begin lets go arrive.
func (b *backlog) beside(ctx context.Context, r *report, begin func(ctx context.Context) error) error {
	l := b.lab
	already := b.at.count()
	l.sayf("20/s of the other tenant, alone")
	before, err := l.run(ctx, flow{rate: quietRate, lasts: l.size.base, one: b.poster("acme", "a.few")})
	if err != nil {
		return err
	}
	l.sayf("the same beside %d deliveries that are let go", b.waiting)
	var (
		during  []post
		ended   = make(chan struct{})
		started = time.Now()
		cost    = b.begin()
	)
	err = concurrently(ctx,
		func(ctx context.Context) (err error) {
			during, err = l.run(ctx, flow{rate: quietRate, lasts: l.size.patience, stop: ended, one: b.poster("acme", "a.few")})
			return err
		},
		func(ctx context.Context) error {
			defer close(ended)
			if err := begin(ctx); err != nil {
				return err
			}
			r.figure("all were let go after", time.Since(started).Seconds(), "s")
			_, err := wait(ctx, l.size.patience, func() bool { return b.at.count()-already >= b.waiting })
			r.figure("all had arrived after", time.Since(started).Seconds(), "s")
			return err
		})
	if err != nil {
		return err
	}
	cost.report(r, "during")
	if _, err := wait(ctx, l.size.patience, func() bool { return match(during, b.quiet.soFar()).missing == 0 }); err != nil {
		return err
	}
	if err := installation.Pause(ctx, underWay); err != nil { // for duplicates
		return err
	}
	r.exactly("deliveries that were let go and arrived", b.at.count()-already, b.waiting, "")
	quiet, disturbed := match(before, b.quiet.soFar()), match(during, b.quiet.soFar())
	r.figure("the other tenant's events meanwhile", float64(len(during)), "")
	r.compare("the other tenant, end to end", &quiet, &disturbed, crowdShare, 0)
	return nil
}
