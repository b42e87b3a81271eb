package localpg

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Delays between restarts of a server: the first restart is immediate, then the delay
// doubles, so that a server that cannot start (a full disk) does not keep the machine busy.
const (
	firstRestartWait = 100 * time.Millisecond
	lastRestartWait  = 10 * time.Second
)

// Supervised is a cluster whose server is restarted when it ends by itself. Its connection
// strings stay the same. It is safe for concurrent use.
type Supervised struct {
	options Options
	url     func(database string) string

	mu      sync.Mutex
	cluster *Cluster

	stop    context.CancelFunc
	watched sync.WaitGroup
}

// Supervise is Start for a cluster that runs until Stop. Options.Lock is required: it must
// outlive every server.
func Supervise(ctx context.Context, o Options) (*Supervised, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	cluster, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if cluster.socketDir != cluster.dir {
		o.socketDir = cluster.socketDir
	}
	s := &Supervised{options: o, url: cluster.URL, cluster: cluster}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.watched.Go(func() { s.watch(watch, cluster) })
	return s, nil
}

// URL is Cluster.URL. It stays the same when the server is restarted.
func (s *Supervised) URL(database string) string { return s.url(database) }

// Stop ends the supervision and the server, as Cluster.Stop does.
func (s *Supervised) Stop(ctx context.Context) error {
	s.stop()
	s.watched.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return nil // it has ended and was not restarted yet
	}
	return s.cluster.Stop(ctx)
}

// watch restarts the server when it has ended, until ctx is done.
func (s *Supervised) watch(ctx context.Context, cluster *Cluster) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-cluster.Done():
		}
		s.set(nil)
		if cluster = s.restart(ctx); cluster == nil {
			return
		}
		s.set(cluster)
	}
}

// restart starts the server and retries until it succeeds; nil when ctx is done.
func (s *Supervised) restart(ctx context.Context) *Cluster {
	for wait := firstRestartWait; ctx.Err() == nil; wait = min(2*wait, lastRestartWait) {
		cluster, err := Start(ctx, s.options)
		if err == nil {
			s.options.Log.InfoContext(ctx, "PostgreSQL was started again", slog.Int("pid", cluster.PID()))
			return cluster
		}
		if ctx.Err() == nil {
			s.options.Log.ErrorContext(ctx, "PostgreSQL could not be started again", slog.Any("error", err), slog.Duration("next_try_in", wait))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *Supervised) set(cluster *Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = cluster
}
