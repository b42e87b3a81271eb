package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const deadName = "dead-100"

const (
	perTenant       = 100 // endpoints; one of them is dead
	fewestEndpoints = 3 * perTenant
	deadRate        = 20.0 // events per second to all dead endpoints together
)

// city is many endpoints in tenants of a hundred. The first endpoint of each tenant is
// dead.
type city struct {
	*place

	well    *receiver
	tenants int
	dead    [3]string // addresses: refuses, hangs, 503
}

// dead: one in a hundred endpoints is dead in one of three ways.
func dead(ctx context.Context, l *lab, r *report) (err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	c := &city{place: in, tenants: l.size.endpoints / perTenant}
	var receivers [3]*receiver
	for i, m := range []manner{answers, hangs, fails} {
		if receivers[i], err = in.receive(ctx, m); err != nil {
			return err
		}
	}
	closed, release, err := closedPort()
	if err != nil {
		return err
	}
	defer release()
	c.well, c.dead = receivers[0], [3]string{closed, receivers[1].base, receivers[2].base}

	started := time.Now()
	if err := c.build(ctx); err != nil {
		return err
	}
	r.figure("endpoints made", float64(c.tenants*perTenant), "")
	r.figure("endpoints made per second", float64(c.tenants*perTenant)/time.Since(started).Seconds(), "/s")
	l.sayf("%d endpoints after %s; 50/s to the healthy ones, alone", c.tenants*perTenant, time.Since(started).Round(time.Second))
	cost := in.begin()
	before, err := l.run(ctx, flow{rate: steady, lasts: l.size.base, one: c.toWell(0)})
	if err != nil {
		return err
	}
	cost.report(r, "before")
	l.sayf("the same beside 20/s to %d dead endpoints", c.tenants)
	cost = in.begin()
	var during []post
	err = concurrently(ctx,
		func(ctx context.Context) (err error) {
			during, err = l.run(ctx, flow{rate: steady, lasts: l.size.base, one: c.toWell(len(before))})
			return err
		},
		func(ctx context.Context) error {
			_, err := l.run(ctx, flow{rate: deadRate, lasts: l.size.base, one: c.toDead})
			return err
		})
	if err != nil {
		return err
	}
	cost.report(r, "during")
	if _, err := wait(ctx, l.size.patience, func() bool { return match(during, c.well.soFar()).missing == 0 }); err != nil {
		return err
	}
	quiet, disturbed := match(before, c.well.soFar()), match(during, c.well.soFar())
	r.compare("the healthy endpoints, end to end", &quiet, &disturbed, neighbourShare, neighbourMore)
	return nil
}

// build creates all endpoints concurrently.
func (c *city) build(ctx context.Context) error { return forEach(ctx, c.tenants, c.settle) }

// settle creates one tenant with its endpoints.
func (c *city) settle(ctx context.Context, t int) error {
	name := fmt.Sprintf("t%d", t)
	if err := c.tenant(ctx, name); err != nil {
		return err
	}
	for e := range perTenant {
		address := c.well.base
		if e == 0 {
			address = c.dead[t%len(c.dead)]
		}
		_, err := c.endpoint(ctx, name, fields{"url": address, "event_types": []string{kindOf(e)}, "auto_disable": false})
		if err != nil {
			return err
		}
	}
	return nil
}

// kindOf is the event type of a tenant's endpoint.
func kindOf(e int) string { return fmt.Sprintf("to.e%d", e) }

// toWell posts to one healthy endpoint after another, never twice in a row to the same
// tenant.
func (c *city) toWell(from int) func(ctx context.Context, i int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		i += from
		t, e := i%c.tenants, 1+i/c.tenants%(perTenant-1)
		return c.poster(fmt.Sprintf("t%d", t), kindOf(e))(ctx, i)
	}
}

// toDead posts to one dead endpoint after another.
func (c *city) toDead(ctx context.Context, i int) (string, error) {
	return c.poster(fmt.Sprintf("t%d", i%c.tenants), kindOf(0))(ctx, i)
}
