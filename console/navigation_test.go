package console

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each entry of the navigation leads to a page, with the same access. The start page leads sessions of a tenant on to its overview. The
// catalogue is read by tenants, too, who find it where they choose event types.
func TestNavigation(t *testing.T) {
	t.Parallel()
	all := routes()
	for _, e := range navigation() {
		i := slices.IndexFunc(all, func(r route) bool { return r.pattern == "GET "+e.path })
		require.GreaterOrEqual(t, i, 0, e.Label)
		if e.Label != homeTitle && e.Label != eventTypesTitle {
			require.Equal(t, e.access, all[i].access, e.Label)
		}
	}
}
