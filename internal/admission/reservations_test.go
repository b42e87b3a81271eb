package admission

import (
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// firstFree tries every candidate: from itself, and the end of each reservation's interval.
func firstFree(slots []reservation, from, gap time.Duration) time.Duration {
	candidates := []time.Duration{from}
	for _, s := range slots {
		if s.at+gap > from {
			candidates = append(candidates, s.at+gap)
		}
	}
	slices.Sort(candidates)
	for _, at := range candidates {
		if !slices.ContainsFunc(slots, func(s reservation) bool { return s.at > at-gap && s.at < at+gap }) {
			return at
		}
	}
	panic("there is always room at the end")
}

// The reservations against a search of every possible time: the first one that is free is found, holes included,
// whatever was given back or has expired.
func TestReservationsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := reservations{counts: &reserved{shares: fair.NewElastic(1000)}, tenant: unique.Make("")}
		gap := time.Duration(rapid.IntRange(1, 5).Draw(t, "gap"))
		var model []reservation
		endpoint, n, now := webhook.NewEndpointID(), 0, time.Duration(0)
		add := func(from time.Duration) {
			at := line.free(from, steady(gap))
			require.Equal(t, firstFree(model, from, gap), at)
			n++
			id := webhook.DeliveryIDOf(webhook.EventID{byte(n), byte(n >> 8)}, endpoint)
			line.add(at, id)
			model = append(model, reservation{at: at, delivery: id})
			slices.SortFunc(model, func(a, b reservation) int { return int(a.at - b.at) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				add(now + time.Duration(rapid.IntRange(0, 40).Draw(t, "from")))
			},
			"add many": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "how many") {
					add(now + time.Duration(rapid.IntRange(0, 40).Draw(t, "from")))
				}
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					require.False(t, line.remove(webhook.DeliveryID{}))
					t.Skip("nothing is reserved")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				require.True(t, line.remove(model[i].delivery))
				require.False(t, line.remove(model[i].delivery))
				model = slices.Delete(model, i, i+1)
			},
			"come": func(t *rapid.T) {
				if len(model) == 0 {
					require.Nil(t, line.of(webhook.DeliveryID{}))
					t.Skip("nothing is reserved")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				line.of(model[i].delivery).waiting = true
				model[i].waiting = true
			},
			"expire": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 20).Draw(t, "by"))
				line.expire(now)
				model = slices.DeleteFunc(model, func(s reservation) bool { return s.at < now && !s.waiting })
			},
			"": func(t *rapid.T) {
				require.Len(t, line.all, len(model))
				require.Len(t, line.when, len(model))
				require.EqualValues(t, len(model), line.counts.total.Load())
				for i, s := range model {
					require.Equal(t, s, line.all[i])
					require.Equal(t, s.at, line.when[s.delivery])
				}
			},
		})
	})
}

// A hole in front of the first reservation that was given back is found again, with and without one before it.
func TestReservationsGivenBack(t *testing.T) {
	t.Parallel()
	for _, before := range [][]time.Duration{nil, {50}} {
		line := reservations{counts: &reserved{shares: fair.NewElastic(1000)}, tenant: unique.Make("")}
		endpoint := webhook.NewEndpointID()
		add := func(from, want time.Duration) webhook.DeliveryID {
			at := line.free(from, steady(5))
			require.Equal(t, want, at, "after %v", before)
			id := newDelivery(endpoint)
			line.add(at, id)
			return id
		}
		for _, at := range before {
			add(at, at)
		}
		first, second := add(102, 102), add(100, 107)
		add(100, 112)
		require.True(t, line.remove(first))
		require.True(t, line.remove(second))
		add(105, 105)
		add(101, 117)
		add(100, 100)
	}
}

// The interval may change from one search to the next: what is found keeps the present one to both neighbours.
func TestReservationsChangingGap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := reservations{counts: &reserved{shares: fair.NewElastic(1000)}, tenant: unique.Make("")}
		for n := range byte(rapid.IntRange(0, 60).Draw(t, "n")) {
			gap := time.Duration(rapid.IntRange(1, 1000).Draw(t, "gap"))
			from := time.Duration(rapid.IntRange(0, 10_000).Draw(t, "from"))
			at := line.free(from, steady(gap))
			require.GreaterOrEqual(t, at, from)
			for _, s := range line.all {
				require.GreaterOrEqual(t, (s.at - at).Abs(), gap)
			}
			line.add(at, webhook.DeliveryID{n})
		}
	})
}

// Deliveries that come one after another do not each search all reservations: what is full stays known, during a
// ramp-up, while latencies vary, while the first ones go, and with a hole far behind.
func TestReservationsIsCheap(t *testing.T) {
	t.Parallel()
	line := reservations{counts: &reserved{shares: fair.NewElastic(1000)}, tenant: unique.Make("")}
	slope := rampUp{active: true, from: time.Minute, over: rampTime, base: 500}
	for i := range 5000 {
		now := time.Duration(i) * time.Millisecond
		p := pacing{rate: intervalOf(10_000), slots: time.Millisecond + time.Duration(i%100)*time.Microsecond, ramp: &slope}
		line.free(now, p)
		at := line.free(now+minDeferral, p)
		line.freeBefore(now, now+secondChance, steady(time.Microsecond))
		line.add(at, webhook.DeliveryID{byte(i), byte(i >> 8)})
		if i%10 == 9 {
			line.remove(line.all[0].delivery)
		}
		if i%1000 == 999 {
			line.remove(line.all[len(line.all)-10].delivery)
			line.free(now+minDeferral, p)
		}
		if i > 100 {
			require.LessOrEqual(t, line.index(line.full.from), 2, "what is in front")
			require.LessOrEqual(t, len(line.all)-line.index(line.full.to), 12, "what is behind")
		}
	}
}

// Where the interval becomes shorter there are holes between reservations that keep the old one.
func TestReservationsFaster(t *testing.T) {
	t.Parallel()
	line := reservations{counts: &reserved{shares: fair.NewElastic(1000)}, tenant: unique.Make("")}
	for n := range byte(10) {
		line.add(line.free(0, steady(100)), webhook.DeliveryID{n})
	}
	require.EqualValues(t, 1000, line.free(0, steady(100)))
	require.EqualValues(t, 50, line.free(0, steady(50)))
	line.add(50, webhook.DeliveryID{10})
	at, found := line.freeBefore(0, 120, steady(50))
	require.False(t, found)
	require.EqualValues(t, 150, at)
	at, found = line.freeBefore(0, 150, steady(50))
	require.True(t, found)
	require.EqualValues(t, 150, at)
	require.EqualValues(t, 150, line.free(0, steady(50)))
}

// steady is a pacing without a ramp-up.
func steady(gap time.Duration) pacing { return pacing{rate: gap, ramp: &rampUp{}} }
