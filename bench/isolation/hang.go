package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/everpost/everpost/bench/internal/installation"
)

const hangName = "hang"

// The criterion for another endpoint: its p99 increases by at most 10 % and 5 ms.
const (
	neighbourShare = 0.1
	neighbourMore  = 5.0
)

// warmUp uses connections, statements and caches once.
func (p *place) warmUp(ctx context.Context, tenant, kind string) error {
	_, err := p.burst(ctx, tenant, kind, 2*batchSize, 2)
	if err != nil {
		return err
	}
	return installation.Pause(ctx, p.lab.size.base/10)
}

// hang: one endpoint's receiver accepts requests, never responds and has a backlog; the
// other is healthy.
func hang(ctx context.Context, l *lab, r *report) (err error) {
	in, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	if err := in.tenant(ctx, "acme"); err != nil {
		return err
	}
	hanging, slow, err := in.against(ctx, hangs, "a.slow", fields{})
	if err != nil {
		return err
	}
	well, _, err := in.against(ctx, answers, "a.quick", fields{})
	if err != nil {
		return err
	}
	if err := in.warmUp(ctx, "acme", "a.quick"); err != nil {
		return err
	}
	watched := flow{rate: steady, lasts: l.size.base, one: in.poster("acme", "a.quick")}

	l.sayf("50/s to the other endpoint, alone")
	cost := in.begin()
	before, err := l.run(ctx, watched)
	if err != nil {
		return err
	}
	cost.report(r, "before")
	l.sayf("the same while %d deliveries arrive that hang", l.size.backlog)
	cost = in.begin()
	arriving, err := l.whileTheyArrive(ctx, in, watched)
	if err != nil {
		return err
	}
	cost.report(r, "while they arrive")
	l.sayf("the same beside them")
	cost = in.begin()
	during, err := l.run(ctx, watched)
	if err != nil {
		return err
	}
	cost.report(r, "during")
	held, err := in.count(ctx, "acme", "endpoint_id="+slow+"&state=held", l.size.backlog)
	if err != nil {
		return err
	}
	if _, err := wait(ctx, l.size.patience, func() bool { return match(during, well.soFar()).missing == 0 }); err != nil {
		return err
	}
	arrived := match(arriving, well.soFar())
	r.figure("the other endpoint, end to end, while they arrive: p99", arrived.quantile(99), "ms")
	quiet, disturbed := match(before, well.soFar()), match(during, well.soFar())
	r.compare("the other endpoint, end to end", &quiet, &disturbed, neighbourShare, neighbourMore)
	_, connections := hanging.atOnce()
	r.atMost("connections of the receiver that hangs, at once", float64(connections), 10, "")
	r.figure("requests to the receiver that hangs", float64(len(hanging.soFar())), "")
	r.figure("held in the end", float64(held), "deliveries")
	if _, most, ok := installation.MemoryOf(in.Pid()); ok {
		r.figure("RSS, at most", most, "MiB")
	}
	return nil
}

// whileTheyArrive runs a third of the flow and posts the backlog at its beginning.
func (l *lab) whileTheyArrive(ctx context.Context, in *place, watched flow) (posts []post, err error) {
	watched.lasts /= 3
	err = concurrently(ctx,
		func(ctx context.Context) (err error) { posts, err = l.run(ctx, watched); return err },
		func(ctx context.Context) error {
			_, err := in.burst(ctx, "acme", "a.slow", l.size.backlog, 1)
			return err
		})
	return posts, err
}

// count returns how many deliveries a query finds. It stops counting at the limit.
func (p *place) count(ctx context.Context, tenant, query string, limit int) (int, error) {
	n, cursor := 0, ""
	for {
		var page struct {
			Data       []struct{} `json:"data"`
			NextCursor *string    `json:"next_cursor"`
		}
		_, err := p.API.Send(ctx, http.MethodGet, tenantPath(tenant, "/deliveries?limit=250&"+query+cursor), nil, &page, http.StatusOK)
		if err != nil {
			return n, err
		}
		n += len(page.Data)
		if n >= limit || page.NextCursor == nil {
			return n, nil
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}
