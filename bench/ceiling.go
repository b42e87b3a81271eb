package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/bench/internal/installation"
	"github.com/everpost/everpost/internal/localpg"
)

const ceilingName = "ceiling"

// ceiling measures the machine's limit: 64 connections, each of which inserts a row, waits
// for the commit, and posts the payload to the receiver. A crash would lose the event, and
// nothing is retried.
func ceiling(ctx context.Context, b *bench) ([]row, error) {
	w := b.throughputWork()
	w.name = ceilingName
	rows, err := b.plain(ctx, w)
	if len(rows) > 0 {
		b.ceiling = rows[0].figures[deliveriesPerSecond]
	}
	return rows, err
}

// plain runs works with the plain loop, one after the other, each with at most as many
// connections as the throughput work. PostgreSQL is installed and configured exactly as the
// installation's own.
func (b *bench) plain(ctx context.Context, works ...work) (rows []row, err error) {
	home, err := installation.NewHome(b.dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(home, "data")
	defer func() { err = errors.Join(err, installation.RemoveHome(home, data)) }()
	database, err := localpg.Start(ctx, localpg.Options{Dir: data})
	if errors.Is(err, localpg.ErrNotInstalled) { // like the installation
		if err = localpg.Install(ctx); err == nil {
			database, err = localpg.Start(ctx, localpg.Options{Dir: data})
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), installation.StopPatience)
		defer cancel()
		err = errors.Join(err, database.Stop(ctx))
	}()

	p := &plainLoop{bench: b, pid: database.PID(), url: database.URL(localpg.Database), http: installation.NewHTTPClient()}
	defer p.close(ctx)
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, work{events: b.size.warmUp, endpoints: 1, connections: len(p.connections), batch: 1}); err != nil {
		return nil, err
	}
	for _, w := range works {
		w.about = "insert a row with commit, POST it: no engine"
		f, err := p.measure(ctx, w)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row{w.name, w.describe(), f})
	}
	return rows, nil
}

// plainLoop has 64 connections to PostgreSQL and to the receiver.
type plainLoop struct {
	bench       *bench
	pid         int // of the postmaster
	url         string
	http        *http.Client
	connections []*pgx.Conn
}

func (p *plainLoop) open(ctx context.Context) error {
	for range p.bench.throughputWork().connections {
		c, err := pgx.Connect(ctx, p.url)
		if err != nil {
			return fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		p.connections = append(p.connections, c)
	}
	const table = `create table event (id text primary key, type text not null, payload bytea not null, created_at timestamptz not null default now())`
	if _, err := p.connections[0].Exec(ctx, table); err != nil {
		return fmt.Errorf("make the table: %w", err)
	}
	if err := p.connections[0].QueryRow(ctx, "show server_version").Scan(&p.bench.machine.PostgreSQL); err != nil {
		return fmt.Errorf("ask for the version of PostgreSQL: %w", err)
	}
	return nil
}

func (p *plainLoop) close(ctx context.Context) {
	p.http.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, c := range p.connections {
		_ = c.Close(ctx) // the server is stopped next
	}
}

// measure runs the work and returns its figures.
func (p *plainLoop) measure(ctx context.Context, w work) (figures, error) {
	m := startMeter(p.pid)
	l, err := p.run(ctx, w)
	if err != nil {
		return nil, err
	}
	f := l.figures()
	m.stop(f, w.deliveries())
	for _, m := range []metric{acceptedPerSecond, acceptP50, acceptP95, acceptP99, drain} {
		delete(f, m) // there is no 202 response
	}
	// The process is the postmaster here, and there is no other.
	if own, ok := f[cpuGo]; ok {
		f.set(cpuPostgres, f[cpuPostgres]+own)
		f.set(cpuGo, 0)
		delete(f, rssMax)
	}
	return f, nil
}

// run runs the loop.
func (p *plainLoop) run(ctx context.Context, w work) (*ledger, error) {
	l := p.bench.newLedger(w)
	defer p.bench.receiver.close(l)
	address := p.bench.receiver.url(l, 0)
	return l, drive(ctx, l, func(ctx context.Context, connection, first, _ int) error {
		payload := appendPayload(nil, first, p.bench.padding)
		_, err := p.connections[connection].Exec(ctx, `insert into event (id, type, payload) values ($1, $2, $3)`,
			fmt.Sprintf("%s-%d", l.id, first), eventType(l), payload)
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(payload))
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		response, err := p.http.Do(request)
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		return response.Body.Close()
	})
}
