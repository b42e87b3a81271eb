package postgres

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// A source is what a cache under test fills itself from. Its fills wait to be let
// go, one value at a time.
type source struct {
	reads  int
	value  string
	err    error
	weight int
	until  time.Time
	gate   chan struct{} // nil: fills do not wait
}

func (s *source) fill(ctx context.Context, _ string) (filled[string], error) {
	s.reads++
	found := filled[string]{value: s.value, weight: max(1, s.weight), until: s.until} // read before the wait, as a query's snapshot is
	err := s.err
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return filled[string]{}, ctx.Err()
		}
	}
	return found, err
}

func (s *source) cache(t *testing.T, life func() time.Duration) *cache[string, string] {
	t.Helper()
	c := newCache(3, life, s.fill)
	t.Cleanup(c.close)
	return c
}

func minute() time.Duration { return time.Minute }

func get(t *testing.T, c *cache[string, string], key string) string {
	t.Helper()
	v, err := c.get(t.Context(), key)
	require.NoError(t, err)
	return v
}

// async is a get in a goroutine of its own.
func async(t *testing.T, c *cache[string, string]) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		v, err := c.get(t.Context(), "k")
		if err != nil {
			v = err.Error()
		}
		got <- v
	}()
	synctest.Wait()
	return got
}

// advance moves the clock of a synctest bubble on. Nobody waits for it.
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

// R9: a cache fill is stored only if no invalidation came meanwhile.
func TestCacheFillThatAChangeOvertookIsNotKept(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*cache[string, string]){
		"forget":    func(c *cache[string, string]) { c.forget("k") },
		"forgetAll": func(c *cache[string, string]) { c.forgetAll() },
		"forgetIf":  func(c *cache[string, string]) { c.forgetIf(func(string) bool { return false }) },
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
				require.Equal(t, 2, src.reads, "who comes after the change does not join the fill from before it")

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
		_, ok := c.known("k")
		require.False(t, ok)
		require.Zero(t, src.reads)
		get(t, c, "k")
		advance(time.Minute - 1)
		v, ok := c.known("k")
		require.True(t, ok)
		require.Equal(t, "v", v)
		advance(1)
		_, ok = c.known("k")
		require.False(t, ok)
		require.Zero(t, c.weight)
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
	_, err := c.get(t.Context(), "k")
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
		go func() { _, err := c.get(ctx, "k"); left <- err }()
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
		c.close()
		require.Equal(t, context.Canceled.Error(), <-waiting)
		_, err := c.get(t.Context(), "k")
		requireCode(t, webhook.CodeUnavailable, err)
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
		require.Len(t, c.entries, 3, "what is larger than the cache leaves the others alone")
		src.weight = 2
		get(t, c, "large")
		require.Equal(t, 3, c.weight)
	})
}

func TestCacheWeightIsTheSumOfItsEntries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10
		clock := time.Minute
		c := newCache(limit, func() time.Duration { return clock }, func(_ context.Context, key int) (filled[int], error) {
			return filled[int]{value: key, weight: 1 + key%12}, nil
		})
		defer c.close()
		keys := rapid.IntRange(0, 23)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				v, err := c.get(context.Background(), key)
				require.NoError(t, err)
				require.Equal(t, key, v)
			},
			"forget":    func(t *rapid.T) { c.forget(keys.Draw(t, "key")) },
			"forgetIf":  func(*rapid.T) { c.forgetIf(func(v int) bool { return v%2 == 0 }) },
			"forgetAll": func(*rapid.T) { c.forgetAll() },
			"expire":    func(*rapid.T) { clock = time.Minute - clock },
			"": func(t *rapid.T) {
				sum := 0
				for _, e := range c.entries {
					sum += e.weight
				}
				require.Equal(t, sum, c.weight)
				require.LessOrEqual(t, sum, limit)
				require.Empty(t, c.flights)
			},
		})
	})
}

func TestEndpointCacheShowsOwnChangesAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	c := s.Endpoints.Cache()
	_, at, err := c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Zero(t, at)

	e := createEndpoint(t, s, "acme")
	of, at, err := c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, of, 1)
	require.EqualValues(t, 1, at)
	first, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, []string{canarySecret}, first.Secrets)
	again, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Same(t, first, again, "from the cache")

	_, err = s.UpdateEndpoint(t.Context(), testActor(), "acme", e.ID, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })
	require.NoError(t, err)
	target, err := c.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, "https://new.example", target.URL)
	of, _, err = c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, "https://new.example", of[0].URL)

	require.NoError(t, s.DeleteEndpoint(t.Context(), testActor(), "acme", e.ID))
	_, err = c.Target(t.Context(), e.ID)
	requireCode(t, webhook.CodeNotFound, err)
	of, at, err = c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.Empty(t, of)
	require.EqualValues(t, 3, at)
}
