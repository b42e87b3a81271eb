package activities

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// whoAmI is the goroutine's own name.
func whoAmI() string {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	return string(name)
}

// Whoever has nothing to do any more does what is next, until nothing has come for a while.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		c := newCrew(over)
		who := make(chan string, 1)
		do := func() string {
			c.run(func() { who <- whoAmI() })
			name := <-who
			synctest.Wait()
			return name
		}
		first := do()
		<-time.After(crewRest - 1)
		require.Equal(t, first, do())

		busy := make(chan struct{})
		c.run(func() { <-busy })
		second := do()
		require.NotEqual(t, first, second, "nobody waits for another")
		close(busy)

		<-time.After(crewRest + 1)
		third := do()
		require.NotContains(t, []string{first, second}, third, "it has gone home")
		close(over)
	})
}
