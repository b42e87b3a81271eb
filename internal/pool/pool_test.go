package pool

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// However many functions run at a time, all do, and no more goroutines stay than may.
func TestPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stay, n = 4, 20
		p, release := New(stay), make(chan struct{})
		var running, ended atomic.Int64
		begin := func() {
			p.Go(func() {
				running.Add(1)
				<-release
				ended.Add(1)
			})
		}
		for range n {
			begin()
		}
		synctest.Wait()
		require.Equal(t, int64(n), running.Load(), "none waits for another")
		require.Zero(t, p.idle.Load())
		close(release)
		synctest.Wait()
		require.Equal(t, int64(n), ended.Load())
		require.Equal(t, int64(stay), p.idle.Load())

		release = make(chan struct{})
		begin()
		synctest.Wait()
		require.Equal(t, int64(stay-1), p.idle.Load(), "one that stayed runs it")
		close(release)
		p.Close()
		require.Equal(t, int64(n+1), ended.Load(), "Close waits")
	})
}

// A function may have another one run while the pool is being closed.
func TestGoDuringClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, release, ended := New(1), make(chan struct{}), false
		p.Go(func() {
			<-release
			p.Go(func() { ended = true })
		})
		var closing sync.WaitGroup
		closing.Go(p.Close)
		synctest.Wait()
		close(release)
		closing.Wait()
		require.True(t, ended)
	})
}

// What a function costs that needs as much stack as a request: on a goroutine that stays, and on a new one.
func BenchmarkDeepFunctions(b *testing.B) {
	for name, stay := range map[string]int{"stays": 64, "new": 0} {
		b.Run(name, func(b *testing.B) {
			p := New(stay)
			var done sync.WaitGroup
			for b.Loop() {
				done.Add(1)
				p.Go(func() {
					deep(24)
					done.Done()
				})
				done.Wait()
			}
			p.Close()
		})
	}
}

//go:noinline
func deep(n int) int {
	var room [1 << 10]byte
	if n == 0 {
		return int(room[n])
	}
	return deep(n-1) + int(room[n])
}
