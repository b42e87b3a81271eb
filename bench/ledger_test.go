package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/bench/internal/installation"
)

// TestLedgerCounts has deliveries that never arrive and deliveries that arrive twice.
func TestLedgerCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		fails       int32
		arrivals    [4]int // of the deliveries of two events to two endpoints
		lost, twice float64
		answers     []int // of the last delivery
	}{
		{"all", 0, [4]int{1, 1, 1, 1}, 0, 0, []int{200}},
		{"one lost, one twice", 0, [4]int{0, 2, 1, 1}, 1, 1, []int{200}},
		{"three times is two too many", 0, [4]int{1, 1, 1, 3}, 0, 2, []int{200, 200, 200}},
		{"a retry is none", 1, [4]int{2, 2, 2, 2}, 0, 0, []int{503, 200}},
		{"one not tried again, one tried again after its 200", 1, [4]int{1, 2, 2, 3}, 1, 1, []int{503, 200, 200}},
		{"never 200, once each", always, [4]int{1, 1, 1, 1}, 0, 0, []int{503}},
		{"never 200, one not tried, one tried again", always, [4]int{0, 1, 1, 2}, 1, 1, []int{503, 503}},
	} {
		l := newLedger("l", work{events: 2, endpoints: 2, fails: c.fails})
		var answers []int
		for i, n := range c.arrivals {
			answers = nil
			for range n {
				status, ok := l.arrive(i/2, i%2)
				require.True(t, ok, c.name)
				answers = append(answers, status)
			}
		}
		l.accepted[0], l.accepted[1] = 1, 1
		f := l.figures()
		require.InDelta(t, c.lost, f[lost], 0, c.name)
		require.InDelta(t, c.twice, f[duplicates], 0, c.name)
		require.Equal(t, c.answers, answers, c.name)
		require.Equal(t, int(4-c.lost), int(l.done.Load()), c.name)
	}
}

// TestLedgerAccepted: an event that was not accepted is not lost when it does not arrive.
func TestLedgerAccepted(t *testing.T) {
	t.Parallel()
	l := newLedger("l", work{events: 2, endpoints: 1})
	l.accepted[0], l.due[0] = 30*time.Millisecond, 10*time.Millisecond
	l.arrive(0, 0)
	l.slots[0].arrived.Store(int64(110 * time.Millisecond))
	l.last.Store(int64(110 * time.Millisecond))
	f := l.figures()
	require.Equal(t, figures{
		lost: 0, duplicates: 0, refused: 0, drain: 0.08, acceptedPerSecond: 33.333, deliveriesPerSecond: 9.091,
		acceptP50: 20, acceptP95: 20, acceptP99: 20, endToEndP50: 100, endToEndP95: 100, endToEndP99: 100,
	}, f)
}

func TestLedgerKnowsWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	l := newLedger("l", work{events: 2, endpoints: 3})
	for _, c := range [][2]int{{-1, 0}, {2, 0}, {0, -1}, {0, 3}} {
		_, ok := l.arrive(c[0], c[1])
		require.False(t, ok, c)
	}
}

// TestWait returns without an error both when everything has arrived and when nothing more
// arrives.
func TestWait(t *testing.T) {
	t.Parallel()
	l := newLedger("l", work{events: 2, endpoints: 1})
	begun := time.Now()
	require.NoError(t, l.wait(t.Context(), 2*pollInterval, time.Hour))
	require.GreaterOrEqual(t, time.Since(begun), 2*pollInterval, "something may still come")
	require.NoError(t, l.wait(t.Context(), time.Hour, 2*pollInterval))
	l.arrive(0, 0)
	l.arrive(1, 0)
	require.NoError(t, l.wait(t.Context(), time.Hour, time.Hour))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopIt)
	require.ErrorIs(t, newLedger("l", work{events: 1, endpoints: 1}).wait(ctx, time.Hour, time.Hour), errStopIt)
}

var errStopIt = errors.New("stop it")

func TestPayload(t *testing.T) {
	t.Parallel()
	padding := newPadding()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 999_999_999).Draw(t, "event")
		payload := appendPayload(nil, n, padding)
		require.Len(t, payload, payloadSize)
		require.Equal(t, n, eventNumber(payload))
	})
	good := string(appendPayload(nil, 7, padding))
	for _, bad := range []string{
		"", "{}", good[1:], good + " ", `{"k":"00000000x` + good[15:], `{"k": "0000000` + good[14:], `{"k":"000000007"` + good[16:] + " ",
	} {
		require.Equal(t, -1, eventNumber([]byte(bad)), "%.30q, %d bytes", bad, len(bad))
	}
}

// TestDrivePostsEachOnce, for any number of connections and any batch size.
func TestDrivePostsEachOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := work{
			events: rapid.IntRange(1, 60).Draw(t, "events"), endpoints: 1,
			connections: rapid.IntRange(1, 8).Draw(t, "connections"), batch: rapid.IntRange(1, 12).Draw(t, "batch"),
			rate: rapid.SampledFrom([]float64{0, 1e6}).Draw(t, "rate"),
		}
		l := newLedger("l", w)
		posted := make([]atomic.Int32, w.events)
		err := drive(context.Background(), l, func(_ context.Context, connection, first, n int) error {
			require.Less(t, connection, w.connections)
			require.LessOrEqual(t, n, w.batch)
			for i := range n {
				posted[first+i].Add(1)
			}
			return nil
		})
		require.NoError(t, err)
		for i := range posted {
			require.EqualValues(t, 1, posted[i].Load())
			require.GreaterOrEqual(t, l.accepted[i], l.due[i])
			require.Positive(t, l.accepted[i])
		}
	})
}

// TestDriveHidesNoStall: the API hangs once, and the latencies of all events that were due
// meanwhile include it.
func TestDriveHidesNoStall(t *testing.T) {
	t.Parallel()
	const hang, every = 200 * time.Millisecond, 10 * time.Millisecond
	l := newLedger("l", work{events: 20, endpoints: 1, connections: 1, batch: 1, rate: float64(time.Second / every)})
	err := drive(t.Context(), l, func(ctx context.Context, _, first, _ int) error {
		if first == 0 {
			return installation.Pause(ctx, hang)
		}
		return nil
	})
	require.NoError(t, err)
	for i := range l.work.events {
		require.Equal(t, time.Duration(i)*every, l.due[i])
		require.GreaterOrEqual(t, l.accepted[i]-l.due[i], hang-time.Duration(i)*every)
	}
}

func TestDriveEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	l := newLedger("l", work{events: 1e6, endpoints: 1, connections: 4, batch: 1})
	err := drive(t.Context(), l, func(_ context.Context, _, first, _ int) error {
		if first >= 10 {
			return errStopIt
		}
		return nil
	})
	require.ErrorIs(t, err, errStopIt)
	require.Zero(t, l.accepted[len(l.accepted)-1])
}
