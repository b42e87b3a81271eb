package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// counter is a value that its renewals count.
type counter struct{ renewed int }

// renewing is a cache whose renewals wait for gate, and the number of values that it has made.
func renewing(t *testing.T, gate chan error) (c *Cache[string, *counter], made *int) {
	t.Helper()
	made = new(int)
	c = New(Config[string, *counter]{
		Limit: 10, Life: minute,
		Make: func() *counter { *made++; return &counter{} },
		Renew: func(ctx context.Context, _ string, v *counter) (int, error) {
			v.renewed++
			select {
			case err := <-gate:
				return 1 + v.renewed, err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
	})
	t.Cleanup(c.Close)
	return c, made
}

func TestAForgottenValueIsKeptForItsRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan error, 10)
		c, made := renewing(t, gate)
		gate <- nil
		v, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 2, c.values.Weight())
		c.Forget("k")
		_, ok := c.Known("k")
		require.False(t, ok, "it is no longer used")

		gate <- errors.New("away")
		_, err = c.Get(t.Context(), "k")
		require.EqualError(t, err, "away")
		_, ok = c.Known("k")
		require.False(t, ok)
		gate <- nil
		again, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Same(t, v, again)
		require.Equal(t, 3, v.renewed)
		require.Equal(t, 4, c.values.Weight())
		require.Equal(t, 1, *made)

		c.ForgetAll()
		require.Zero(t, c.values.Weight())
		gate <- nil
		another, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.NotSame(t, v, another)
	})
}

// A renewal during which its key is forgotten is not used for a later Get, and its value is not lost.
func TestARenewalThatIsForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*Cache[string, *counter]){
		"the key": func(c *Cache[string, *counter]) { c.Forget("k") },
		"all":     func(c *Cache[string, *counter]) { c.ForgetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan error)
				c, made := renewing(t, gate)
				first := make(chan *counter, 2)
				get := func() {
					v, err := c.Get(t.Context(), "k")
					require.NoError(t, err)
					first <- v
				}
				go get()
				synctest.Wait()
				forget(c)
				gate <- nil
				begun := <-first
				synctest.Wait()
				_, ok := c.Known("k")
				require.False(t, ok, "it may be from before the change")
				go get()
				synctest.Wait()
				gate <- nil
				if name == "all" {
					require.NotSame(t, begun, <-first)
					require.Equal(t, 2, *made)
				} else {
					require.Same(t, begun, <-first)
					require.Equal(t, 1, *made)
				}
				synctest.Wait()
				_, ok = c.Known("k")
				require.True(t, ok)
			})
		})
	}
}
