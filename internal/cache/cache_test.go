package cache

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A source is what a cache under test fills itself from. Its fills wait for gate, one value
// at a time.
type source struct {
	reads  int
	value  string
	err    error
	weight int
	until  time.Time
	gate   chan struct{} // nil: fills do not wait
}

func (s *source) fill(ctx context.Context, _ string) (Filled[string], error) {
	s.reads++
	found := Filled[string]{Value: s.value, Weight: s.weight, Until: s.until} // read before the wait, as a query's snapshot is
	err := s.err
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return Filled[string]{}, ctx.Err()
		}
	}
	return found, err
}

func (s *source) cache(t *testing.T, life func() time.Duration) *Cache[string, string] {
	t.Helper()
	c := New(Config[string, string]{Limit: 3, Life: life, Fill: s.fill})
	t.Cleanup(c.Close)
	return c
}

func minute() time.Duration { return time.Minute }

func get(t *testing.T, c *Cache[string, string], key string) string {
	t.Helper()
	v, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	return v
}

// async is a get in a goroutine of its own.
func async(t *testing.T, c *Cache[string, string]) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		v, err := c.Get(t.Context(), "k")
		if err != nil {
			v = err.Error()
		}
		got <- v
	}()
	synctest.Wait()
	return got
}

// advance moves the clock of a synctest bubble on. No real time passes.
func advance(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is synctest's
}

func TestCacheSharesOneFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v", gate: make(chan struct{})}
		c := src.cache(t, minute)
		a, b := async(t, c), async(t, c)
		src.gate <- struct{}{}
		require.Equal(t, "v", <-a)
		require.Equal(t, "v", <-b)
		require.Equal(t, "v", get(t, c, "k"))
		require.Equal(t, 1, src.reads)
	})
}

// Rule R9: a fill is stored only if no invalidation came meanwhile.
func TestCacheFillThatAChangeOvertookIsNotKept(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*Cache[string, string]){
		"forget":    func(c *Cache[string, string]) { c.Forget("k") },
		"forgetAll": func(c *Cache[string, string]) { c.ForgetAll() },
		"forgetIf":  func(c *Cache[string, string]) { c.ForgetIf(func(string) bool { return false }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				src := &source{value: "old", gate: make(chan struct{})}
				c := src.cache(t, minute)
				early := async(t, c)
				src.value = "new"
				forget(c)
				late := async(t, c)
				require.Equal(t, 2, src.reads, "a caller after the change does not join the fill from before it")

				src.gate <- struct{}{}
				src.gate <- struct{}{}
				require.Equal(t, "old", <-early)
				require.Equal(t, "new", <-late)
				require.Equal(t, "new", get(t, c, "k"))
				require.Equal(t, 2, src.reads)
			})
		})
	}
}

func TestCacheEntryLivesAsLongAsTheListenerAllows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life := time.Minute
		src := &source{value: "v"}
		c := src.cache(t, func() time.Duration { return life })
		get(t, c, "k")
		advance(59 * time.Second)
		get(t, c, "k")
		require.Equal(t, 1, src.reads)
		life = 2 * time.Second // the listener is down: what is there counts as too old
		get(t, c, "k")
		require.Equal(t, 2, src.reads)
		advance(2 * time.Second)
		get(t, c, "k")
		require.Equal(t, 3, src.reads)
	})
}

// What is known is what get would return without a fill.
func TestCacheKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v"}
		c := src.cache(t, minute)
		_, ok := c.Known("k")
		require.False(t, ok)
		require.Zero(t, src.reads)
		get(t, c, "k")
		advance(time.Minute - 1)
		v, ok := c.Known("k")
		require.True(t, ok)
		require.Equal(t, "v", v)
		advance(1)
		_, ok = c.Known("k")
		require.False(t, ok)
		require.Zero(t, c.values.Weight())
		require.Equal(t, 1, src.reads)
	})
}

func TestCacheEntryAgesFromTheStartOfItsFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v", gate: make(chan struct{})}
		c := src.cache(t, func() time.Duration { return 2 * time.Second })
		first := async(t, c)
		advance(1500 * time.Millisecond)
		src.gate <- struct{}{}
		<-first
		src.gate = nil
		advance(600 * time.Millisecond)
		get(t, c, "k")
		require.Equal(t, 2, src.reads, "what was read 2.1 s ago")
	})
}

func TestCacheEntryEndsWithWhatItHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v", until: time.Now().Add(10 * time.Second)}
		c := src.cache(t, minute)
		get(t, c, "k")
		advance(9 * time.Second)
		get(t, c, "k")
		require.Equal(t, 1, src.reads)
		advance(time.Second)
		src.until = time.Time{}
		get(t, c, "k")
		require.Equal(t, 2, src.reads)
	})
}

func TestCacheKeepsNoErrors(t *testing.T) {
	t.Parallel()
	src := &source{err: errors.New("away")}
	c := src.cache(t, minute)
	_, err := c.Get(t.Context(), "k")
	require.EqualError(t, err, "away")
	src.err, src.value = nil, "back"
	require.Equal(t, "back", get(t, c, "k"))
}

func TestACallerThatLeavesTheCacheDoesNotEndTheFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v", gate: make(chan struct{})}
		c := src.cache(t, minute)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := c.Get(ctx, "k"); left <- err }()
		synctest.Wait()
		other := async(t, c)
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		src.gate <- struct{}{}
		require.Equal(t, "v", <-other)
	})
}

func TestCloseEndsTheFillsOfACache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v", gate: make(chan struct{})}
		c := src.cache(t, minute)
		waiting := async(t, c)
		c.Close()
		require.Equal(t, context.Canceled.Error(), <-waiting)
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestCacheIsBoundedAndPrefersWhatIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{value: "v"}
		c := src.cache(t, minute)
		for _, key := range []string{"a", "b", "c"} {
			get(t, c, key)
			advance(time.Millisecond)
		}
		get(t, c, "a")
		get(t, c, "d") // b goes: the least recently used
		require.Equal(t, 4, src.reads)
		for _, key := range []string{"a", "c", "d"} {
			get(t, c, key)
		}
		require.Equal(t, 4, src.reads)

		src.weight = 4
		get(t, c, "giant")
		require.Equal(t, 3, c.Len(), "what is larger than the cache leaves the others alone")
		src.weight = 2
		get(t, c, "large")
		require.Equal(t, 3, c.values.Weight())
	})
}

func TestCacheWeightIsTheSumOfItsEntries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10
		clock := time.Minute
		c := New(Config[int, int]{Limit: limit, Life: func() time.Duration { return clock }, Fill: func(_ context.Context, key int) (Filled[int], error) {
			return Filled[int]{Value: key, Weight: 1 + key%12}, nil
		}})
		defer c.Close()
		keys := rapid.IntRange(0, 23)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				v, err := c.Get(context.Background(), key)
				require.NoError(t, err)
				require.Equal(t, key, v)
			},
			"forget":    func(t *rapid.T) { c.Forget(keys.Draw(t, "key")) },
			"forgetIf":  func(*rapid.T) { c.ForgetIf(func(v int) bool { return v%2 == 0 }) },
			"forgetAll": func(*rapid.T) { c.ForgetAll() },
			"expire":    func(*rapid.T) { clock = time.Minute - clock },
			"": func(t *rapid.T) {
				sum := 0
				for _, e := range c.values.entries {
					sum += e.weight
				}
				require.Equal(t, sum, c.values.Weight())
				require.LessOrEqual(t, sum, limit)
				require.Zero(t, c.Filling())
			},
		})
	})
}

// Of a sample the entry that was used longest ago is evicted; with fewer entries than a sample,
// the very oldest.
func TestMapEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	kept := NewMap[string, int](3)
	begin := time.Now()
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	get := func(key string, now time.Time) int {
		value, _ := kept.Get(key, now)
		return value
	}
	for i := 1; i <= 3; i++ {
		kept.Put(strconv.Itoa(i), i, at(i))
	}
	require.Equal(t, 1, get("1", at(4)))
	kept.Put("2", 22, at(3)) // replaced: no other has to go
	require.Equal(t, 3, kept.Len())
	kept.Put("5", 5, at(5))
	kept.Put("6", 6, at(6))
	require.Equal(t, []int{1, 0, 0, 5, 6}, []int{get("1", at(7)), get("2", at(7)), get("3", at(7)), get("5", at(7)), get("6", at(7))})
}
