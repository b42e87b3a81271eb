package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
)

// pages is a large installation whose console is looked at.
type pages struct {
	history

	endpoints int
	waiting   int // deliveries that wait for a retry for hours
	busy      int // endpoints with statistics of every minute
	looks     int // at each page
	watchers  int // browsers with a live page during the steady work
	beside    pace
	turns     int // with watchers and without
}

// pageBudget is what a page may take at p95, and pageBytes its size.
const (
	pageBudget = 100 * time.Millisecond
	pageBytes  = 100 << 10
)

// pageKind is a page of the console; its address may differ from look to look.
type pageKind struct {
	name string
	path func(*sample) string
}

// pageKinds returns every page that shows stored data.
func pageKinds() []pageKind {
	below := func(rest string) func(*sample) string { return func(*sample) string { return tenantPage(rest) } }
	find := func(query string) func(*sample) string { return below("search?q=" + url.QueryEscape(query)) }
	return []pageKind{
		{"home", func(*sample) string { return "/console" }},
		{"overview", below("")},
		{"endpoints", below("endpoints")},
		{"endpoint", func(s *sample) string { return tenantPage("endpoints/" + s.endpoints.any()) }},
		{"endpoint-busy", func(s *sample) string { return tenantPage("endpoints/" + s.endpoints[0]) }},
		{"endpoint-edit", func(s *sample) string { return tenantPage("endpoints/" + s.endpoints.any() + "/edit") }},
		{"events", below("events")},
		{"events-tag", below("events?tag=none")},
		{"event", func(s *sample) string { return tenantPage("events/" + s.events.any()) }},
		{"deliveries", below("deliveries")},
		{"deliveries-open", below("deliveries?state=pending&state=retrying&state=held")},
		{"deliveries-endpoint", func(s *sample) string { return tenantPage("deliveries?endpoint_id=" + s.endpoints.any()) }},
		{"delivery", func(s *sample) string { return tenantPage("deliveries/" + s.deliveries.any()) }},
		{"dead-letters", below("dead-letters")},
		{"dead-letter", func(s *sample) string { return tenantPage("deliveries/" + s.dead.any()) }},
		{"search-id", func(s *sample) string { return tenantPage("search?q=" + s.deliveries.any()) }},
		{"search-external-id", func(s *sample) string { return tenantPage("search?q=" + s.externalIDs.any()) }},
		{"search-url", find("url:receive")},
		{"search-state", find("state:retrying")},
		{"search-type", find("type:bench.* since:30d")},
		{"search-status", find("status:410")},
		{"search-reason", find("reason:http_410 since:30d")},
		{"search-none", find("type:other.* state:delivered")},
		{"replays", below("replays")},
		{"retry-policies", below("retry-policies")},
		{"notifications", below("notifications")},
		{"keys", below("keys")},
		{"tenants", func(*sample) string { return "/console/tenants" }},
		{"audit", func(*sample) string { return "/console/audit" }},
	}
}

func tenantPage(rest string) string { return "/console/t/" + tenant + "/" + rest }

// sample has ids of what was written, to look at.
type sample struct {
	endpoints, events, deliveries, dead, externalIDs ids // of the endpoints the busiest is the first
}

type ids []string

func (i ids) any() string { return i[rand.IntN(len(i))] }

// lookAtPages measures how long each page of the console takes in a large installation, and
// whether live pages disturb deliveries.
func lookAtPages(ctx context.Context, b *bench) (_ []row, err error) {
	in, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	size := b.size.pages
	if err := b.addEndpoints(ctx, in, size.endpoints); err != nil {
		return nil, err
	}
	b.sayf("writing %d deliveries of %d endpoints", size.deliveries(), size.endpoints)
	started := time.Now()
	found, err := writePages(ctx, in, size)
	if err != nil {
		return nil, err
	}
	b.sayf("written after %s", time.Since(started).Round(time.Second))
	if err := b.restart(ctx, in); err != nil {
		return nil, err
	}
	looker, err := logIn(ctx, in.API)
	if err != nil {
		return nil, err
	}
	rows, err := b.look(ctx, looker, found)
	if err != nil {
		return rows, err
	}
	beside, err := b.watch(ctx, in, found)
	return append(rows, beside...), err
}

// addEndpoints creates endpoints for an event type that nobody posts.
func (b *bench) addEndpoints(ctx context.Context, in *instance, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error {
			_, err := in.api.addEndpoint(ctx, fmt.Sprintf("%s/receive/%d", b.receiver.base, i), "bench.past", nil)
			return err
		})
	}
	return group.Wait() //nolint:wrapcheck // the client's error
}

func writePages(ctx context.Context, in *instance, size pages) (*sample, error) {
	past, err := openPast(ctx, in)
	if err != nil {
		return nil, err
	}
	defer past.close(ctx)
	if err := past.write(ctx, size.history); err != nil {
		return nil, err
	}
	if err := past.leaveWaiting(ctx, size.waiting); err != nil {
		return nil, err
	}
	if err := past.writeStatistics(ctx, size); err != nil {
		return nil, err
	}
	return past.sample(ctx)
}

// look opens every page in turn, as one person does, and returns a row for each.
func (b *bench) look(ctx context.Context, looker *browser, of *sample) ([]row, error) {
	kinds := pageKinds()
	var failed error
	took, most := make([][]time.Duration, len(kinds)), make([]int, len(kinds))
	for range b.size.pages.looks {
		for i, kind := range kinds {
			started := time.Now()
			n, err := looker.open(ctx, kind.path(of))
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			took[i], most[i] = append(took[i], time.Since(started)), max(most[i], n)
		}
	}
	var rows []row
	for i, kind := range kinds {
		f := figures{}
		f.setQuantiles(took[i], pageP50, pageP95, pageP99)
		f.set(pageKiB, float64(most[i])/1024)
		about := ""
		if i == 0 {
			about = fmt.Sprintf("and the other pages: each %d times, one after another, beside %d deliveries of %d endpoints",
				b.size.pages.looks, b.size.pages.deliveries(), b.size.pages.endpoints)
		}
		rows = append(rows, row{"page-" + kind.name, about, f})
		if f[pageP95] > milliseconds(pageBudget) || most[i] > pageBytes {
			b.sayf("%s is over its budget of %s and %d KiB: %.0f ms at p95, %.0f KiB", kind.name, pageBudget, pageBytes>>10, f[pageP95], f[pageKiB])
		}
	}
	return rows, failed
}

// watch alternates the steady work alone and with browsers that have live pages.
func (b *bench) watch(ctx context.Context, in *instance, of *sample) ([]row, error) {
	work := b.size.pages.beside.work()
	var alone, beside []figures
	for turn := range b.size.pages.turns {
		for i := range 2 {
			if (turn+i)%2 == 0 {
				f, err := b.measure(ctx, in, work)
				if err != nil {
					return nil, err
				}
				alone = append(alone, f)
				continue
			}
			f, err := b.measureWatched(ctx, in, work, of)
			if err != nil {
				return nil, err
			}
			beside = append(beside, f)
		}
	}
	about := fmt.Sprintf("%s, median of %d", work.describe(), b.size.pages.turns)
	without, with := median(alone), median(beside)
	with.set(p99Ratio, with[endToEndP99]/without[endToEndP99])
	return []row{
		{"pages-alone", about + ", in turns with the next", without},
		{"pages-watched", fmt.Sprintf("%s, beside %d browsers with live pages", about, b.size.pages.watchers), with},
	}, nil
}

// measureWatched measures a work while browsers, each with a session of its own, follow live pages.
func (b *bench) measureWatched(ctx context.Context, in *instance, w work, of *sample) (_ figures, err error) {
	var live []string
	for _, kind := range pageKinds() {
		switch kind.name {
		case "overview", "deliveries", "endpoint-busy", "endpoints", "delivery":
			live = append(live, kind.path(of))
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	group, watching := errgroup.WithContext(watching)
	for i := range b.size.pages.watchers {
		one, err := logIn(ctx, in.API)
		if err != nil {
			return nil, err
		}
		group.Go(func() error { return one.follow(watching, live[i%len(live)]) })
	}
	f, err := b.measure(ctx, in, w)
	stop()
	return f, errors.Join(err, group.Wait())
}
