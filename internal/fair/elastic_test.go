package fair

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A tenant that is alone holds all of n, and another one has a place at once, as long as n leaves one.
func TestElasticIsAllForOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		s := NewElastic(n)
		held := 0
		for s.TryAcquire("alone") {
			held++
		}
		require.Equal(t, n, held)
		require.Equal(t, n >= elasticity, s.TryAcquire("other"))
	})
}

// However many tenants want all there is, and in whatever order places are returned: each comes to half of its share at least, as long as there are
// many times the 15 that a single free place is good for.
func TestElasticBecomesEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tenants := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(2, 5).Draw(t, "tenants")]
		n := rapid.IntRange(300, 900).Draw(t, "n")
		s, held := NewElastic(n), map[string]int{}
		fill := func(order []string) {
			for _, tenant := range order {
				for s.TryAcquire(tenant) {
					held[tenant]++
				}
			}
		}
		fill(tenants) // the first has nearly all
		random := rand.New(rand.NewPCG(0, rapid.Uint64().Draw(t, "seed")))
		for range 6 * n {
			// The place that is returned is one of all of them.
			i := random.IntN(s.InUse())
			for _, tenant := range tenants {
				if i -= held[tenant]; i < 0 {
					s.Release(tenant, 1)
					held[tenant]--
					break
				}
			}
			fill(tenants)
		}
		for _, tenant := range tenants {
			require.GreaterOrEqual(t, 2*len(tenants)*held[tenant], n, "%v", held)
		}
		require.LessOrEqual(t, s.InUse(), n+n/elasticity)
	})
}

// Free is how many TryAcquire takes.
func TestFreeIsWhatMayBeTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 60).Draw(t, "size")
		third := max(1, size/3)
		s := rapid.SampledFrom([]*Semaphore{
			NewDynamic(size, 1), NewDynamic(size, 3), NewElastic(size), NewCapped(size, third), NewBounded(size, third),
		}).Draw(t, "kind")
		for _, tenant := range slices.Repeat([]string{"a", "b", "c"}, rapid.IntRange(0, 9).Draw(t, "rounds")) {
			if rapid.Bool().Draw(t, "overdraws") {
				s.Overdraw(tenant, rapid.IntRange(1, 5).Draw(t, "n"))
			} else {
				s.TryAcquire(tenant)
			}
		}
		tenant := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "tenant")
		want, n := s.Free(tenant), 0
		for s.TryAcquire(tenant) {
			n++
		}
		require.Equal(t, want, n)
	})
}
