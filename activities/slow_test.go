package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The places of slow receivers are half of all; a tenant has no more of them than it
// leaves to others, and what is given back may be taken again.
func TestSlowPlacesAreShared(t *testing.T) {
	t.Parallel()
	var s slow
	take := func(tenant string) (n int) {
		for s.take(tenant, 40) {
			n++
		}
		return n
	}
	require.Equal(t, 10, take("a"), "half of twenty")
	require.Equal(t, 5, take("b"), "half of what was left")
	require.Zero(t, take("a"))
	for range 10 {
		s.give("a")
	}
	require.NotContains(t, s.of, "a")
	require.Positive(t, take("b"))
	require.Positive(t, take("c"))
	require.LessOrEqual(t, s.taken, 20)
}
