package console

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each entry of the navigation leads to a page, with the same access.
func TestNavigation(t *testing.T) {
	t.Parallel()
	all := routes()
	for _, e := range navigation() {
		i := slices.IndexFunc(all, func(r route) bool { return r.pattern == "GET "+e.path })
		require.GreaterOrEqual(t, i, 0, e.Label)
		require.Equal(t, e.access, all[i].access, e.Label)
	}
}
