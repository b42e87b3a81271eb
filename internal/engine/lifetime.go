package engine

import (
	"context"
	"sync"
	"time"
)

// stopTimeout is how long Stop waits for calls under way before it cancels them.
const stopTimeout = 1500 * time.Millisecond

// Lifetime is the time in which a process starts and signals workflows. It has two ends: Stopping ends when nothing new may begin, and Calls
// 1.5 s later, when what is under way is cut off.
type Lifetime struct {
	stopping context.Context //nolint:containedctx // its end is what Stop does first
	stop     context.CancelFunc
	calls    context.Context //nolint:containedctx // of calls that outlive their callers; ended by Stop
	cut      context.CancelFunc

	mu   sync.Mutex // held to add to work, so that nothing is added during Stop's Wait
	work sync.WaitGroup
}

func newLifetime() *Lifetime {
	l := &Lifetime{}
	l.stopping, l.stop = context.WithCancel(context.Background())
	l.calls, l.cut = context.WithCancel(context.Background())
	return l
}

// Stopping is a context that ends when Stop begins.
func (l *Lifetime) Stopping() context.Context { return l.stopping }

// Stopped reports whether Stop was called.
func (l *Lifetime) Stopped() bool { return l.stopping.Err() != nil }

// Calls is the context of calls, which may take 1.5 s longer than Stopping.
func (l *Lifetime) Calls() context.Context { return l.calls }

// Go runs work in the background, which Stop waits for. It returns false, and runs nothing, after Stop.
func (l *Lifetime) Go(work func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Stopped() {
		return false
	}
	l.work.Go(work)
	return true
}

// Stop ends the lifetime and waits for all work: 1.5 s for calls under way, and as long as the work then takes to end, which is up to 2 s for
// what a process leaves to others.
func (l *Lifetime) Stop() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	cancel := time.AfterFunc(stopTimeout, l.cut)
	l.work.Wait()
	cancel.Stop()
	l.cut()
}

// Outlive returns the context of one access to a store that is finished although ctx ends meanwhile, if it takes 1.5 s more at most: what a
// store has handed out it does not hand out again for a while. timeout bounds it in any case.
func Outlive(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	unwatch := context.AfterFunc(ctx, func() {
		cut := time.NewTimer(stopTimeout)
		defer cut.Stop()
		select {
		case <-cut.C:
			cancel()
		case <-lasting.Done():
		}
	})
	return lasting, func() {
		unwatch()
		cancel()
	}
}
