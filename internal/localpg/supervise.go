package localpg

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Waits between the tries of a server that has to be started again: at once, then
// doubling, so that one that cannot start (a full disk) does not keep the machine busy.
const (
	firstRestartWait = 100 * time.Millisecond
	lastRestartWait  = 10 * time.Second
)

// Supervised is a cluster whose server is started again when it dies by itself. Its
// connection strings stay the same. It is safe for concurrent use.
type Supervised struct {
	options Options
	url     func(database string) string

	mu      sync.Mutex
	cluster *Cluster

	stop    context.CancelFunc
	watched sync.WaitGroup
}

// Supervise is Start, for a cluster that is to live until Stop. Options.Lock is
// required: it must outlive every server.
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

// URL is Cluster.URL: the same for every server that takes another one's place.
func (s *Supervised) URL(database string) string { return s.url(database) }

// Stop ends the supervision and the server, as Cluster.Stop does.
func (s *Supervised) Stop(ctx context.Context) error {
	s.stop()
	s.watched.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return nil // it had died, and no other had taken its place
	}
	return s.cluster.Stop(ctx)
}

// watch puts a new server in the place of one that has died, until ctx ends.
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

// restart starts the server, as often as it takes; nil when ctx has ended.
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
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

func (s *Supervised) set(cluster *Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = cluster
}
