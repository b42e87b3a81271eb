package health_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/health"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestHundredRefusedInARowDisable(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(60), b.Refused(39)))
	require.Equal(t, webhook.EndpointActive, b.Current(t).State)
	const why = "100 requests in a row were refused permanently, the last with 404 Not Found"
	require.Equal(t, why, storetest.CountFailures(t, b.Stores, b.Refused(1)))
	e := b.Current(t)
	require.Equal(t, webhook.EndpointDisabled, e.State)
	require.Equal(t, why, e.StateReason)
	require.Zero(t, b.Count(t, "endpoint_trouble"))
	require.Equal(t, []string{"everpost"}, storetest.Query[string](t, b.Stores,
		`select actor from audit_log where subject = $1 and action = 'endpoint.disable' and key_id is null`, e.ID.String()))
	target, err := b.Endpoints.Cache().Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointDisabled, target.State, "known here at once")

	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(500)), "of one that is disabled nothing is counted")
	require.Zero(t, b.Count(t, "endpoint_trouble"))
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, 100, "")
	require.NoError(t, err)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(99)), "it begins again")
	require.NotEmpty(t, storetest.CountFailures(t, b.Stores, b.Refused(1)))
}

func TestASuccessInBetweenBeginsAnew(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(99), b.Succeeded(time.Now()), b.Refused(99)))
	// In one look of the process: 99, a success, 1.
	seen := b.Refused(0)
	seen.Add(b.Succeeded(time.Now()))
	seen.Add(b.Refused(1))
	require.Empty(t, storetest.CountFailures(t, b.Stores, seen, b.Refused(98)))
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Succeeded(time.Now().Add(-time.Hour))), "an older one does not count")
	require.NotEmpty(t, storetest.CountFailures(t, b.Stores, b.Refused(1)))
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Succeeded(time.Now())), "without failures there is nothing to be ended")
}

func TestASuccessRemovesTheRow(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(3)))
	all, err := b.FailingEndpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, b.Subscriber.ID, all[0].EndpointID)
	require.False(t, all[0].Disable)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Succeeded(time.Now())))
	require.Zero(t, b.Count(t, "endpoint_trouble"))
}

func TestTenGivenUpWithinADayDisable(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		seen func(b *storetest.Bundle) []webhook.EndpointFailures
		want string
	}{
		"ten": {func(b *storetest.Bundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.Exhausted(9, now.Add(-23*time.Hour)), b.Exhausted(1, now)}
		}, "10 deliveries were given up within 24 hours and none was delivered, the last failed with no answer in time"},
		"nine": {func(b *storetest.Bundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.Exhausted(8, now), b.Exhausted(1, now)}
		}, ""},
		"ten in two days": {func(b *storetest.Bundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.Exhausted(5, now.Add(-25*time.Hour)), b.Exhausted(5, now)}
		}, ""},
		"a success after nine": {func(b *storetest.Bundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.Exhausted(9, now.Add(-time.Hour)), b.Succeeded(now.Add(-time.Minute)), b.Exhausted(9, now)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.ChangedLongAgo(t)
			require.Equal(t, c.want, storetest.CountFailures(t, b.Stores, c.seen(b)...))
		})
	}
}

// What each setting does to each kind of failures.
func TestAutoDisableSettings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		settings                   webhook.AutoDisable
		permanent, exhausted, gone bool // disable
	}{
		"default":  {webhook.DefaultAutoDisable(), false, false, true},
		"off":      {webhook.AutoDisable{}, false, false, true},
		"three":    {webhook.AutoDisable{Enabled: true, Exhausted24h: 3, PermanentStreak: 3}, true, true, true},
		"streak":   {webhook.AutoDisable{Enabled: true, Exhausted24h: 1_000_000, PermanentStreak: 3}, true, false, true},
		"given up": {webhook.AutoDisable{Enabled: true, Exhausted24h: 3, PermanentStreak: 1_000_000}, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.SetAutoDisable(t, c.settings)
			for kind, one := range map[string]struct {
				seen webhook.EndpointFailures
				want bool
			}{
				"permanent": {b.Refused(3), c.permanent}, "exhausted": {b.Exhausted(3, now), c.exhausted},
				"gone": {webhook.EndpointFailures{EndpointID: b.Subscriber.ID, Gone: now}, c.gone},
			} {
				require.Equal(t, one.want, storetest.CountFailures(t, b.Stores, one.seen) != "", kind)
				_, err := b.Pool().Exec(t.Context(), `update endpoints set state = 0; delete from endpoint_trouble`)
				require.NoError(t, err)
				b.ChangedLongAgo(t)
			}
		})
	}
}

func TestOne410Disables(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	seen := b.Refused(1)
	seen.Gone = seen.Began
	seen.Add(b.Succeeded(time.Now()))
	require.Equal(t, "the receiver answered 410: it accepts no more events", storetest.CountFailures(t, b.Stores, seen), "whatever else succeeds")
}

// A request that was made before the endpoint was changed says nothing about it.
func TestFailuresFromBeforeAChangeDoNotCount(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	old := b.Refused(100)
	old.Gone = old.Began
	_, err := b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.URL = "https://example.com/other"
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, storetest.CountFailures(t, b.Stores, old))
	require.Zero(t, b.Count(t, "endpoint_trouble"))

	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(99)))
	_, err = b.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, func(e *webhook.Endpoint) error {
		e.URL = "https://example.com/third"
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "endpoint_trouble"), "another URL begins again")
}

// Two processes count one endpoint: nothing is lost between them, and one disables it.
func TestTwoProcessesCountTogether(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	stores := []*storetest.Stores{b.Stores, storetest.OpenStore(t, b.Address)}
	var (
		mu      sync.Mutex
		reasons []string
		all     sync.WaitGroup
	)
	round := func(each int) {
		for _, s := range stores {
			all.Go(func() {
				for range each {
					if why := storetest.CountFailures(t, s, b.Refused(1)); why != "" {
						mu.Lock()
						reasons = append(reasons, why)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
	}
	round(49)
	require.Equal(t, []int32{98}, storetest.Query[int32](t, b.Stores, `select permanent_streak from endpoint_trouble`))
	require.Empty(t, reasons)
	round(1)
	require.Len(t, reasons, 1)
	require.Contains(t, reasons[0], "100 requests")
	require.Equal(t, 1, storetest.Audits(t, b.Stores, "endpoint.disable"))
}

// A process that died had counted and not come to disabling; or had delivered and not
// come to say so.
func TestWhatAProcessThatDiedLeft(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
	require.NoError(t, err)
	other := storetest.OpenStore(t, b.Address)
	all, err := other.FailingEndpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.True(t, all[0].Disable)

	b.EndIn(t, b.AcceptOne(t), webhook.StateDelivered)
	why, err := other.DisableFailing(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.Empty(t, why, "something was delivered since")
	require.Equal(t, webhook.EndpointActive, b.Current(t).State)
	require.Zero(t, b.Count(t, "endpoint_trouble"))

	seen := b.Refused(100)
	_, err = b.CountFailures(t.Context(), []webhook.EndpointFailures{seen})
	require.NoError(t, err)
	why, err = other.DisableFailing(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.NotEmpty(t, why, "that was before")
}

func TestDeletedEndpointsHaveNoFailures(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(3)))
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	require.Zero(t, b.Count(t, "endpoint_trouble"))
	require.Empty(t, storetest.CountFailures(t, b.Stores, b.Refused(300)))
	require.Zero(t, b.Count(t, "endpoint_trouble"))
	require.NoError(t, b.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
}

// However what was seen is put together before it is written, the row is the same.
func TestFailuresAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		start := time.Now().Truncate(time.Minute)
		settings := webhook.DefaultAutoDisable()
		var one, many health.Failures
		var gathered *webhook.EndpointFailures
		flush := func() {
			if gathered != nil {
				many.Add(gathered, settings, start.Add(-time.Hour))
				gathered = nil
			}
		}
		for n, kind := range rapid.SliceOfN(rapid.IntRange(0, 4), 1, 60).Draw(rt, "events") {
			at := start.Add(time.Duration(n) * time.Second / 2)
			seen := webhook.EndpointFailures{First: at, Last: at, Began: at, Reason: "http_500"}
			switch kind {
			case 0:
				seen = webhook.EndpointFailures{Succeeded: at}
			case 1, 2:
				seen.Permanent = 1
			default:
				seen.Exhausted = 1
			}
			one.Add(&seen, settings, start.Add(-time.Hour))
			if gathered == nil {
				gathered = &webhook.EndpointFailures{}
				*gathered = seen
			} else {
				gathered.Add(seen)
			}
			if rapid.Bool().Draw(rt, "flush") {
				flush()
			}
		}
		flush()
		require.Equal(rt, one.Streak, many.Streak)
		require.Equal(rt, one.Empty(), many.Empty())
		require.True(rt, slices.Equal(one.Exhausted, many.Exhausted))
		if !one.Empty() {
			require.Equal(rt, one.Since, many.Since)
			require.Equal(rt, one.Reason, many.Reason)
		}
	})
}

// The minutes of a day are all that is kept, however much is given up.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	var row health.Failures
	settings := webhook.AutoDisable{Enabled: true, Exhausted24h: 1_000_000, PermanentStreak: 1}
	at := time.Now()
	for range 5000 {
		at = at.Add(40 * time.Second)
		row.Add(&webhook.EndpointFailures{Exhausted: 1000, First: at, Last: at, Began: at}, settings, time.Time{})
	}
	require.LessOrEqual(t, len(row.Minutes), 24*60+1)
	require.Greater(t, len(row.Minutes), 23*60)
	require.Contains(t, row.Why(settings, at), "000 deliveries were given up within 24 hours and none was delivered")
}
