package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/cache"
)

const (
	// raceDelay is the time between the beginnings of two dials of a race: the Connection
	// Attempt Delay of RFC 8305, section 5.
	raceDelay = 250 * time.Millisecond

	maxFailedAddrs = 10_000      // that are remembered
	failedLast     = time.Minute // for which an address that failed is tried last
)

// dialFunc connects to an address. It ends soon after its context.
type dialFunc = func(context.Context, netip.AddrPort) (*pipe, error)

// race dials the addresses in their order and returns the first connection. The next dial
// begins when raceDelay has passed since the last one began, or as soon as one has failed.
// After a fault of this side no other begins. No dial goes on after the end of the race.
//
// When every dial fails, the error is the gravest one (see gravity).
func race(ctx context.Context, addrs []netip.AddrPort, failed *failedAddrs, dial dialFunc) (*pipe, error) {
	if len(addrs) == 1 {
		return dial(ctx, addrs[0])
	}
	below, stop := context.WithCancel(ctx)
	defer stop()
	r := &racing{addrs: addrs, failed: failed, dial: dial, began: make([]time.Time, 0, len(addrs)), results: make(chan dialled, len(addrs))}
	made, err := r.run(below)
	if !errors.Is(ctx.Err(), context.Canceled) {
		r.noteSlow(time.Now())
	}
	stop()
	if own := r.closeLate(); made == nil && own != nil {
		return nil, own
	}
	return made, err
}

// racing is a race under way.
type racing struct {
	addrs   []netip.AddrPort
	failed  *failedAddrs
	dial    dialFunc
	began   []time.Time // of each dial; zero when it has ended
	ended   int         // dials
	results chan dialled
}

// dialled is the result of one dial.
type dialled struct {
	index int // of the address
	made  *pipe
	err   error
}

func (r *racing) run(ctx context.Context) (*pipe, error) {
	next := time.NewTimer(raceDelay)
	defer next.Stop()
	r.start(ctx)
	var gravest error
	for r.ended < len(r.began) {
		select {
		case <-next.C:
		case got := <-r.results:
			r.ended++
			r.began[got.index] = time.Time{}
			if got.err == nil {
				r.failed.remove(r.addrs[got.index])
				return got.made, nil
			}
			if ctx.Err() == nil && !ownFault(got.err) {
				r.failed.add(r.addrs[got.index], time.Now())
			}
			if gravest == nil || gravity(got.err) > gravity(gravest) {
				gravest = got.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("dial: %w", ctx.Err())
		}
		if len(r.began) < len(r.addrs) && !ownFault(gravest) {
			r.start(ctx)
			next.Reset(raceDelay)
		}
	}
	return nil, gravest
}

// start begins the next dial.
func (r *racing) start(ctx context.Context) {
	index := len(r.began)
	r.began = append(r.began, time.Now())
	go func() {
		made, err := r.dial(ctx, r.addrs[index])
		r.results <- dialled{index, made, err}
	}()
}

// noteSlow counts as failed what had raceDelay and has no connection.
func (r *racing) noteSlow(now time.Time) {
	for i, began := range r.began {
		if !began.IsZero() && now.Sub(began) >= raceDelay {
			r.failed.add(r.addrs[i], now)
		}
	}
}

// closeLate waits for the dials that are under way and closes their connections. It returns a fault of this side that
// one of them has met: that is why the others took so long.
func (r *racing) closeLate() (own error) {
	for ; r.ended < len(r.began); r.ended++ {
		switch late := <-r.results; {
		case late.err == nil:
			_ = late.made.tcp.Close()
		case ownFault(late.err):
			own = late.err
		}
	}
	return own
}

// gravity orders the errors of a race's dials. A refusal of the guard counts as a denied
// address, which is final, while another address may work the next time. If one dial has
// used up the time, that is what happened to the request. A refusal of the proxy says more about
// the others than that they failed.
func gravity(err error) int {
	_, refused := errors.AsType[*DeniedError](err)
	switch {
	case refused:
		return 0
	case ownFault(err):
		return 4
	case isProxyRefusal(err):
		return 3
	case isTimeout(err):
		return 2
	default:
		return 1
	}
}

// ownFault reports whether this side has failed, not an address.
func ownFault(err error) bool { return isOwn(err) || exhausted(err) }

// failedAddrs remembers the addresses to which no connection could be made lately. It is
// safe for concurrent use.
type failedAddrs struct {
	mu  sync.Mutex
	all *cache.Map[netip.AddrPort, time.Time] // when they failed
}

func newFailedAddrs() *failedAddrs {
	return &failedAddrs{all: cache.NewMap[netip.AddrPort, time.Time](maxFailedAddrs)}
}

func (f *failedAddrs) add(addr netip.AddrPort, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Put(addr, now, now)
}

func (f *failedAddrs) remove(addr netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Delete(addr)
}

// sortLast moves the addresses that failed within failedLast to the end. Otherwise the order
// stays, so that a set whose order the name server changes remains balanced.
func (f *failedAddrs) sortLast(addrs []netip.AddrPort, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rank := func(addr netip.AddrPort) int {
		if at, ok := f.all.Peek(addr); ok && now.Sub(at) < failedLast {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(addrs, func(a, b netip.AddrPort) int { return rank(a) - rank(b) })
}
