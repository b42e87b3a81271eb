package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A tenant has no more places than it leaves to others, and what is given back may be
// taken again.
func TestShares(t *testing.T) {
	t.Parallel()
	var s shares
	take := func(tenant string) (n int) {
		for s.take(tenant, 20) {
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
