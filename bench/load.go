package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/bench/internal/installation"
)

// sender posts the events [first, first+n) of a load over one of its connections.
type sender func(ctx context.Context, connection, first, n int) error

// drive posts the ledger's work and returns when all of it was accepted.
//
// With a rate, event i is due at i ÷ rate, whatever happens to those before it, and its
// latencies count from then: a stall delays many events and is not hidden by posting fewer
// (G. Tene's "coordinated omission"). Without a rate, it is due when its connection is
// free.
func drive(ctx context.Context, l *ledger, send sender) error {
	w := l.work
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	l.began = time.Now()
	for connection := range min(w.connections, w.events) {
		group.Go(func() error {
			for {
				first := int(next.Add(int64(w.batch))) - w.batch
				n := min(w.batch, w.events-first)
				if n <= 0 {
					return nil
				}
				if err := l.await(ctx, first, n); err != nil {
					return err
				}
				if err := send(ctx, connection, first, n); err != nil {
					return err
				}
				at := l.since()
				for i := range n {
					l.accepted[first+i] = at
				}
			}
		})
	}
	return group.Wait() //nolint:wrapcheck // the sender's error
}

// await waits until the events are due and records the time.
func (l *ledger) await(ctx context.Context, first, n int) error {
	due := l.since()
	if l.work.rate > 0 {
		due = time.Duration(float64(first) / l.work.rate * float64(time.Second))
		if err := installation.Pause(ctx, due-l.since()); err != nil {
			return err
		}
	}
	for i := range n {
		l.due[first+i] = due
	}
	return nil
}

// newPadding returns a random text from which payloads take their padding.
func newPadding() string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	text := make([]byte, 8*payloadSize)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))]
	}
	return string(text)
}

// apiSender posts to an installation's API.
func (b *bench) apiSender(in *instance, l *ledger) sender {
	bodies := make([][]byte, l.work.connections)
	return func(ctx context.Context, connection, first, n int) error {
		body := bodies[connection][:0]
		if l.work.batch > 1 {
			body = append(body, `{"events":[`...)
		}
		for i := first; i < first+n; i++ {
			if i > first {
				body = append(body, ',')
			}
			body = fmt.Appendf(body, `{"type":"%s","external_id":"%s-%d","payload":`, eventType(l), l.id, i)
			body = append(appendPayload(body, i, b.padding), '}')
		}
		if l.work.batch > 1 {
			body = append(body, "]}"...)
		}
		bodies[connection] = body
		refusals, err := in.api.postEvents(ctx, l.work.batch > 1, body)
		l.refusals.Add(int64(refusals))
		return err
	}
}

func eventType(l *ledger) string { return "bench." + l.id }

// open creates a ledger for the work and its endpoints. Close it when nothing more can
// arrive.
func (b *bench) open(ctx context.Context, in *instance, w work) (*ledger, error) {
	l := b.newLedger(w)
	for i := range w.endpoints {
		id, err := in.api.addEndpoint(ctx, b.receiver.url(l, i), eventType(l), w.settings)
		if err != nil {
			b.receiver.close(l)
			return nil, err
		}
		l.endpointIDs = append(l.endpointIDs, id)
	}
	return l, nil
}

// newLedger creates a ledger and registers it with the receiver.
func (b *bench) newLedger(w work) *ledger {
	b.ledgers++
	l := newLedger(fmt.Sprintf("l%d", b.ledgers), w)
	b.receiver.open(l)
	return l
}

// errTooSlow ends a work whose events the API does not accept in time.
var errTooSlow = errors.New("the API did not accept all events in time")

// deliver posts the whole work and waits for the deliveries.
func (b *bench) deliver(ctx context.Context, in *instance, l *ledger) error {
	posting, cancel := context.WithTimeoutCause(ctx, b.size.patience, errTooSlow)
	defer cancel()
	if err := drive(posting, l, b.apiSender(in, l)); err != nil {
		return err
	}
	return l.wait(ctx, b.size.stall, cmp.Or(l.work.patience, b.size.patience))
}

// warmUp uses every connection, statement and cache of an installation once. It is not
// measured.
func (b *bench) warmUp(ctx context.Context, in *instance) error {
	l, err := b.open(ctx, in, work{name: "warm-up", events: b.size.warmUp, endpoints: 1, connections: 64, batch: 1})
	if err != nil {
		return err
	}
	defer b.receiver.close(l)
	if err := b.deliver(ctx, in, l); err != nil {
		return err
	}
	return installation.Pause(ctx, b.size.settle)
}

// measure runs the work on an installation and returns its figures. CPU is measured until
// some time after the last arrival, to include late work.
func (b *bench) measure(ctx context.Context, in *instance, w work) (figures, error) {
	l, err := b.open(ctx, in, w)
	if err != nil {
		return nil, err
	}
	defer b.receiver.close(l)
	m := startMeter(in.Pid())
	if err := b.deliver(ctx, in, l); err != nil {
		return nil, err
	}
	if err := installation.Pause(ctx, b.size.linger); err != nil {
		return nil, err
	}
	f := l.figures()
	m.stop(f, w.deliveries())
	if b.ceiling > 0 && w.rate == 0 {
		f.set(ofCeiling, f[deliveriesPerSecond]/b.ceiling)
	}
	if f[lost] > 0 { // some may be waiting for an attempt
		for _, id := range l.endpointIDs {
			n, err := in.api.count(ctx, id, w.events, "pending", "retrying", "held")
			if err != nil {
				return nil, err
			}
			f[stillOpen] += float64(n)
		}
		f[lost] -= f[stillOpen]
	}
	return f, nil
}

// meter measures the usage of a process and its PostgreSQL during a work.
type meter struct {
	pid     int
	known   bool
	before  installation.Usage
	self    float64
	started time.Time
}

func startMeter(pid int) meter {
	m := meter{pid: pid, self: installation.SelfCPU(), started: time.Now()}
	m.before, m.known = installation.UsageOf(pid)
	return m
}

// stop adds the CPU per delivery and the memory to the figures. Without /proc it only adds
// this program's own CPU.
func (m meter) stop(f figures, deliveries int) {
	each := 1000 / float64(deliveries)
	f.set(cpuBench, (installation.SelfCPU()-m.self)*each)
	after, ok := installation.UsageOf(m.pid)
	if !ok || !m.known {
		return
	}
	used := after.Minus(m.before)
	f.set(cpuGo, used.Process*each)
	f.set(cpuPostgres, used.Below*each)
	f.set(cpuOthers, used.Others()/time.Since(m.started).Seconds())
	if _, most, ok := installation.MemoryOf(m.pid); ok {
		f.set(rssMax, most)
	}
}

// alone measures one work on a new installation, and profiles it if requested.
func (b *bench) alone(ctx context.Context, w work) (_ []row, err error) {
	in, err := b.warm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.End()) }()
	f, err := b.measure(ctx, in, w)
	if err != nil {
		return nil, err
	}
	return []row{{w.name, w.describe(), f}}, b.profile(ctx, in, w)
}

// fresh returns a started installation with nothing but the tenant.
func (b *bench) fresh(ctx context.Context) (*instance, error) {
	in, err := newInstance(b.dir, b.binary, b.settings)
	if err != nil {
		return nil, err
	}
	if _, err = in.Start(ctx); err == nil {
		in.api = client{in.API}
		err = in.api.putTenant(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, in.End())
	}
	return in, nil
}

// warm returns a fresh installation after a warm-up.
func (b *bench) warm(ctx context.Context) (*instance, error) {
	in, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.warmUp(ctx, in); err != nil {
		return nil, errors.Join(err, in.End())
	}
	return in, nil
}
