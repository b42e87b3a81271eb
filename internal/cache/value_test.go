package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counting fills a Value with how many fills there were.
func counting(t testing.TB, life time.Duration) (*Value[int], *atomic.Int64) {
	t.Helper()
	fills := &atomic.Int64{}
	v := NewValue(Config[struct{}, int]{
		Life: func() time.Duration { return life },
		Fill: func(context.Context, struct{}) (Filled[int], error) {
			return Filled[int]{Value: int(fills.Add(1))}, nil
		},
	})
	t.Cleanup(v.Close)
	return v, fills
}

func TestValueIsReadOnceUntilItIsForgottenOrTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, fills := counting(t, time.Minute)
		expect := func(want int) {
			t.Helper()
			for range 3 {
				got, err := v.Get(t.Context())
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			require.EqualValues(t, want, fills.Load())
		}
		expect(1)
		v.Forget()
		expect(2)
		advance(time.Minute - 1)
		expect(2)
		advance(1)
		expect(3)
		v.Close()
		expect(3)
		v.Forget()
		_, err := v.Get(t.Context())
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestValueKeepsNoErrorsAndWhatEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		found, err := Filled[int]{}, errors.New("away")
		v := NewValue(Config[struct{}, int]{Life: minute, Fill: func(context.Context, struct{}) (Filled[int], error) { return found, err }})
		defer v.Close()
		_, got := v.Get(t.Context())
		require.Equal(t, err, got)
		found, err = Filled[int]{Value: 1, Until: time.Now().Add(time.Second)}, nil
		value, got := v.Get(t.Context())
		require.NoError(t, got)
		require.Equal(t, 1, value)
		found.Value, found.Until = 2, time.Time{}
		advance(time.Second)
		value, got = v.Get(t.Context())
		require.NoError(t, got)
		require.Equal(t, 2, value)
	})
}

// A Get never returns what is older than the last Forget before it, whatever others do at the time.
func TestValueIsNeverOlderThanAChange(t *testing.T) {
	t.Parallel()
	var stored atomic.Int64
	v := NewValue(Config[struct{}, int64]{
		Life: minute, Fill: func(context.Context, struct{}) (Filled[int64], error) {
			return Filled[int64]{Value: stored.Load()}, nil
		},
	})
	defer v.Close()
	var known atomic.Int64 // changes that are forgotten
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 5000 {
				least := known.Load()
				got, err := v.Get(t.Context())
				if err != nil || got < least {
					t.Errorf("got %d after the change %d: %v", got, least, err)
					return
				}
			}
		})
	}
	work.Go(func() {
		for range 5000 {
			n := stored.Add(1)
			v.Forget()
			known.Store(n)
		}
	})
	work.Wait()
}

// What is fresh is read by all processors at once: the benchmark of a Cache is for comparison.
func BenchmarkValue(b *testing.B) {
	v, _ := counting(b, time.Hour)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = v.Get(b.Context())
		}
	})
}

func BenchmarkCacheOfOne(b *testing.B) {
	v, _ := counting(b, time.Hour)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = v.cache.Get(b.Context(), struct{}{})
		}
	})
}
