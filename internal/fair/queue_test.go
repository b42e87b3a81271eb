package fair

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// item is something of a tenant's, with a number.
type item struct {
	tenant string
	n      int
}

// A model of the queue: no item is lost or taken twice, a tenant's items keep their order, between
// two items of a tenant every other waiting tenant gets a turn, and the bound holds.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := New[item](rapid.IntRange(1, 40).Draw(t, "size"))
		tenants := []string{"a", "b", "c", "d", "e"}
		waiting := map[string][]int{}
		since := map[string]map[string]bool{} // by tenant: those that have waited since its last turn and had none
		number, total := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					number++
					if !q.Put(tenant, item{tenant, number}) {
						require.True(t, total >= q.size || len(waiting[tenant]) >= overcommit*(q.size-total), "there was a place")
						return
					}
					require.Less(t, total, q.size)
					require.True(t, len(waiting[tenant]) == 0 || len(waiting[tenant]) < overcommit*(q.size-total), "it was another's")
					waiting[tenant] = append(waiting[tenant], number)
					total++
				}
			},
			"next": func(t *rapid.T) {
				start, ok := q.Next()
				require.Equal(t, total > 0, ok)
				if !ok {
					return
				}
				total--
				tenant := start.tenant
				require.Equal(t, waiting[tenant][0], start.n, "the first of its tenant")
				waiting[tenant] = waiting[tenant][1:]
				require.Empty(t, since[tenant], "they waited for longer")
				since[tenant] = map[string]bool{}
				for other := range waiting {
					delete(since[other], tenant)
					if other != tenant && len(waiting[other]) > 0 {
						since[tenant][other] = true
					}
				}
			},

			"": func(t *rapid.T) {
				tenants := 0
				for _, all := range waiting {
					if len(all) > 0 {
						tenants++
					}
				}
				require.Len(t, q.byTenant, tenants, "a tenant without items is forgotten")
				require.Equal(t, total, q.Len())
				require.Equal(t, total > 0, q.first != nil)
				require.True(t, total == 0 || len(q.Ready) == 1, "a reader has to be woken")
			},
		})
	})
}

// Concurrent writers and readers: each item is taken once, and a reader is always woken.
func TestQueueConcurrently(t *testing.T) {
	t.Parallel()
	const tenants, each, takers = 8, 2000, 3
	q := New[item](2 * tenants * each)
	var putting, taking sync.WaitGroup
	var mu sync.Mutex
	got := map[string][]int{}
	left := tenants * each
	done := make(chan struct{})
	for range takers {
		taking.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-q.Ready:
				}
				mu.Lock() // so that the order in which they come is known
				for range 50 {
					start, ok := q.Next()
					if !ok {
						break
					}
					got[start.tenant] = append(got[start.tenant], start.n)
					left--
					if left == 0 {
						close(done)
					}
				}
				mu.Unlock()
				q.Wake()
			}
		})
	}
	for i := range tenants {
		putting.Go(func() {
			for n := range each {
				if !q.Put(strconv.Itoa(i), item{strconv.Itoa(i), n}) {
					panic("there is a place for all")
				}
			}
		})
	}
	putting.Wait()
	taking.Wait()
	require.Len(t, got, tenants)
	for tenant, numbers := range got {
		require.Len(t, numbers, each, tenant)
		for n, number := range numbers {
			require.Equal(t, n, number, tenant)
		}
	}
	require.Zero(t, q.Len())
}

// A tenant that fills the queue leaves places to the others.
func TestATenantLeavesPlaces(t *testing.T) {
	t.Parallel()
	q := New[item](16_000)
	fill := func(tenant string) (n int) {
		for q.Put(tenant, item{tenant, n}) {
			n++
		}
		return n
	}
	require.Equal(t, 15_000, fill("a"))
	require.Equal(t, 938, fill("b"), "fifteen sixteenths of what is left")
	require.True(t, q.Put("c", item{"c", 1}))
}

// One put and one take, while that many tenants wait.
func BenchmarkQueue(b *testing.B) {
	for _, tenants := range []int{0, 1, 100, 10_000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			q := New[item](1 << 20)
			for i := range 2 * tenants {
				q.Put(strconv.Itoa(i%tenants), item{strconv.Itoa(i % tenants), i})
			}
			one := item{"other", 1}
			b.ReportAllocs()
			for b.Loop() {
				q.Put(one.tenant, one)
				one, _ = q.Next()
			}
		})
	}
}
