package activities

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// goroutineName returns the name of the calling goroutine.
func goroutineName() string {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	return string(name)
}

// An idle goroutine runs the next function. It ends when it has been idle for a while.
func TestGoroutinePool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		p := newGoroutinePool(over)
		names := make(chan string, 1)
		do := func() string {
			p.run(func() { names <- goroutineName() })
			name := <-names
			synctest.Wait()
			return name
		}
		first := do()
		<-time.After(poolIdle - 1)
		require.Equal(t, first, do())

		busy := make(chan struct{})
		p.run(func() { <-busy })
		second := do()
		require.NotEqual(t, first, second, "a function does not wait for a busy goroutine")
		close(busy)

		<-time.After(poolIdle + 1)
		third := do()
		require.NotContains(t, []string{first, second}, third, "idle goroutines have ended")
		close(over)
	})
}
