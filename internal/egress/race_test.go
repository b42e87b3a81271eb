package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errGone = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// runner is how one address of a race behaves: it connects or fails after a time, or hangs.
type runner struct {
	after time.Duration
	err   error
	hangs bool
}

// runRace races addresses that behave like this, with a deadline after 15 s.
func runRace(t *testing.T, failed *failedAddrs, addrs []netip.AddrPort, runners map[netip.AddrPort]runner,
) (winner netip.AddrPort, began map[netip.AddrPort]time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	start := time.Now()
	began = map[netip.AddrPort]time.Duration{}
	connected := map[*pipe]netip.AddrPort{}
	var mu sync.Mutex
	tcp, err := race(ctx, addrs, failed, func(ctx context.Context, addr netip.AddrPort) (*pipe, error) {
		mu.Lock()
		began[addr] = time.Since(start)
		mu.Unlock()
		own := runners[addr]
		if own.hangs {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		select {
		case <-time.After(own.after):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if own.err != nil {
			return nil, own.err
		}
		made := &pipe{tcp: &net.TCPConn{}}
		mu.Lock()
		defer mu.Unlock()
		connected[made] = addr
		return made, nil
	})
	return connected[tcp], began, err
}

func port(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(n))
}

func TestRace(t *testing.T) {
	t.Parallel()
	hang, up := runner{hangs: true}, runner{after: 20 * time.Millisecond}
	gone := runner{after: 5 * time.Millisecond, err: errGone}
	refused := runner{err: &DeniedError{Reasons: []string{"no"}}}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		runners []runner
		winner  int // -1: none
		took    time.Duration
		began   []time.Duration
		err     error
		last    []int // addresses that are tried last from now on
	}{
		"the first is up":            {[]runner{up, up}, 0, 20 * ms, []time.Duration{0}, nil, nil},
		"the first is dead":          {[]runner{hang, up}, 1, 270 * ms, []time.Duration{0, 250 * ms}, nil, []int{0}},
		"two of three are dead":      {[]runner{hang, hang, up}, 2, 520 * ms, []time.Duration{0, 250 * ms, 500 * ms}, nil, []int{0, 1}},
		"the first refuses":          {[]runner{gone, up, up}, 1, 25 * ms, []time.Duration{0, 5 * ms}, nil, []int{0}},
		"one refuses, one is dead":   {[]runner{gone, hang, up}, 2, 275 * ms, []time.Duration{0, 5 * ms, 255 * ms}, nil, []int{0, 1}},
		"a slow one still wins":      {[]runner{{after: 300 * ms}, {after: 100 * ms}}, 0, 300 * ms, []time.Duration{0, 250 * ms}, nil, nil},
		"all refuse":                 {[]runner{gone, gone}, -1, 10 * ms, []time.Duration{0, 5 * ms}, errGone, []int{0, 1}},
		"all are dead":               {[]runner{hang, hang}, -1, 15 * time.Second, []time.Duration{0, 250 * ms}, context.DeadlineExceeded, []int{0, 1}},
		"dead after one refused":     {[]runner{gone, hang}, -1, 15 * time.Second, []time.Duration{0, 5 * ms}, context.DeadlineExceeded, []int{0, 1}},
		"the guard refuses one":      {[]runner{refused, gone}, -1, 5 * ms, []time.Duration{0, 0}, errGone, []int{0, 1}},
		"this side fails":            {[]runner{{err: syscall.EMFILE}, up}, -1, 0, []time.Duration{0}, syscall.EMFILE, nil},
		"this side fails, one is up": {[]runner{{after: 400 * ms}, {err: syscall.EMFILE}, up}, 0, 400 * ms, []time.Duration{0, 250 * ms}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failed := newFailedAddrs()
				var addrs []netip.AddrPort
				runners := map[netip.AddrPort]runner{}
				for i, r := range c.runners {
					addrs = append(addrs, port(i+1))
					runners[port(i+1)] = r
				}
				start := time.Now()
				winner, began, err := runRace(t, failed, addrs, runners)
				require.Equal(t, c.took, time.Since(start))
				require.Len(t, began, len(c.began))
				for i, at := range c.began {
					require.Equal(t, at, began[port(i+1)], "address %d", i)
				}
				if c.winner >= 0 {
					require.NoError(t, err)
					require.Equal(t, port(c.winner+1), winner)
				} else {
					require.ErrorIs(t, err, c.err)
				}
				var last []int
				for i, addr := range addrs {
					if at, ok := failed.all.Peek(addr); ok && time.Since(at) < failedLast {
						last = append(last, i)
					}
				}
				require.Equal(t, c.last, last)
			})
		})
	}
}

// A cancelled request says nothing about the addresses.
func TestCancelledRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := newFailedAddrs()
		time.AfterFunc(time.Second, cancel)
		_, err := race(ctx, []netip.AddrPort{port(1), port(2)}, failed, func(ctx context.Context, _ netip.AddrPort) (*pipe, error) {
			<-ctx.Done()
			return nil, errors.New("interrupted")
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, failed.all.Len())
	})
}

// Addresses that failed go last for a minute; otherwise the order stays.
func TestFailedAddressesGoLast(t *testing.T) {
	t.Parallel()
	f := newFailedAddrs()
	now := time.Now()
	f.add(port(1), now)
	f.add(port(3), now.Add(time.Second))
	f.add(port(4), now)
	f.remove(port(4))
	all := []netip.AddrPort{port(1), port(5), port(3), port(4), port(2)}
	sorted := func(at time.Time) []netip.AddrPort {
		copied := slices.Clone(all)
		f.sortLast(copied, at)
		return copied
	}
	require.Equal(t, []netip.AddrPort{port(5), port(4), port(2), port(1), port(3)}, sorted(now.Add(2*time.Second)))
	require.Equal(t, []netip.AddrPort{port(1), port(5), port(4), port(2), port(3)}, sorted(now.Add(failedLast)))
	require.Equal(t, all, sorted(now.Add(failedLast+time.Second)))
	for i := range 2 * maxFailedAddrs {
		f.add(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 443), now)
	}
	require.Equal(t, maxFailedAddrs, f.all.Len())
}
