package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// waiter is somebody who asked for a place.
type waiter struct {
	leave context.CancelFunc
	got   chan bool
}

func (w *waiter) answer() (got, answered bool) {
	select {
	case got = <-w.got:
		return got, true
	default:
		return false, false
	}
}

// Reserve's fairness, against a model: take never uses more than there is, places
// go in the order of asking, and none is lost, whoever leaves or overdraws.
func TestRoomModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A bubble's clock has no deadline of the test, for which rapid would ask.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			size := rapid.IntRange(1, 4).Draw(t, "size")
			r := newRoom(size)
			used, waiting := 0, []*waiter(nil)
			admit := func() { // whoever is first gets what is free
				for used < size && len(waiting) > 0 {
					got, answered := waiting[0].answer()
					require.True(t, got && answered, "the first in the line was passed over")
					waiting = waiting[1:]
					used++
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"take": func(*rapid.T) {
					ctx, cancel := context.WithCancel(context.Background())
					w := &waiter{leave: cancel, got: make(chan bool, 1)}
					go func() { w.got <- r.take(ctx, time.Hour) }()
					synctest.Wait()
					waiting = append(waiting, w)
					admit()
				},
				"leave": func(t *rapid.T) {
					if len(waiting) == 0 {
						t.Skip("nobody waits")
					}
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
					waiting[i].leave()
					synctest.Wait()
					got, answered := waiting[i].answer()
					require.True(t, answered)
					require.False(t, got)
					waiting = append(waiting[:i:i], waiting[i+1:]...)
				},
				"overdraw": func(t *rapid.T) {
					n := rapid.IntRange(1, 3).Draw(t, "n")
					r.overdraw(n)
					used += n
				},
				"give": func(t *rapid.T) {
					if used == 0 {
						t.Skip("nothing is used")
					}
					n := rapid.IntRange(1, used).Draw(t, "n")
					r.give(n)
					synctest.Wait()
					used -= n
					admit()
				},
				"": func(t *rapid.T) {
					require.Equal(t, used, r.used)
					require.Equal(t, len(waiting), r.waiters.Len())
					for _, w := range waiting {
						_, answered := w.answer()
						require.False(t, answered, "nothing was free")
					}
				},
			})
			for _, w := range waiting {
				w.leave()
			}
			synctest.Wait()
		})
	})
}

func TestRoomPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1)
		require.True(t, r.take(t.Context(), 0))
		begun := time.Now()
		require.False(t, r.take(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(begun))
		time.AfterFunc(time.Second/2, func() { r.give(1) })
		begun = time.Now()
		require.True(t, r.take(t.Context(), time.Second))
		require.Equal(t, time.Second/2, time.Since(begun))
		require.Equal(t, 1, r.used)
	})
}
