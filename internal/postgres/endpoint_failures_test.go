package postgres

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// refused is n deliveries that were refused for good just now.
func (b *deliveryBundle) refused(n int) webhook.EndpointFailures {
	now := time.Now()
	return webhook.EndpointFailures{EndpointID: b.endpoint.ID, Permanent: n, First: now, Last: now, Began: now, Reason: "http_404"}
}

// exhausted is n deliveries that were given up at a time.
func (b *deliveryBundle) exhausted(n int, at time.Time) webhook.EndpointFailures {
	return webhook.EndpointFailures{EndpointID: b.endpoint.ID, Exhausted: n, First: at, Last: at, Began: at, Reason: "timeout_headers"}
}

func (b *deliveryBundle) succeeded(at time.Time) webhook.EndpointFailures {
	return webhook.EndpointFailures{EndpointID: b.endpoint.ID, Succeeded: at}
}

// tell counts and, as a process does, disables who has enough; it returns why.
func tell(t *testing.T, s *stores, seen ...webhook.EndpointFailures) string {
	t.Helper()
	var why []string
	for _, one := range seen {
		left, err := s.CountFailures(t.Context(), []webhook.EndpointFailures{one})
		require.NoError(t, err)
		for _, failing := range left {
			if failing.Disable {
				got, err := s.DisableFailing(t.Context(), failing.TenantID, failing.EndpointID)
				require.NoError(t, err)
				why = append(why, got)
			}
		}
	}
	return strings.Join(why, "")
}

func (b *deliveryBundle) now(t *testing.T) webhook.Endpoint {
	t.Helper()
	e, err := b.Endpoint(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	return e
}

// set changes the endpoint's settings; it counts as changed long ago.
func (b *deliveryBundle) set(t *testing.T, d webhook.AutoDisable) {
	t.Helper()
	_, err := b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.AutoDisable = d
		return nil
	})
	require.NoError(t, err)
	b.changedLongAgo(t)
}

func (b *deliveryBundle) changedLongAgo(t *testing.T) {
	t.Helper()
	_, err := b.login.Exec(t.Context(), `update endpoints set updated_at = now() - interval '2 days'`)
	require.NoError(t, err)
}

func TestHundredRefusedInARowDisable(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	require.Empty(t, tell(t, b.stores, b.refused(60), b.refused(39)))
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	const why = "100 requests in a row were refused for good, the last with 404"
	require.Equal(t, why, tell(t, b.stores, b.refused(1)))
	e := b.now(t)
	require.Equal(t, webhook.EndpointDisabled, e.State)
	require.Equal(t, why, e.StateReason)
	require.Zero(t, b.count(t, "endpoint_trouble"))
	require.Equal(t, []string{"everpost"}, query[string](t, b.stores,
		`select actor from audit_log where subject = $1 and action = 'endpoint.disable' and key_id is null`, e.ID.String()))
	target, err := b.Endpoints.cache.Target(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointDisabled, target.State, "known here at once")

	require.Empty(t, tell(t, b.stores, b.refused(500)), "of one that is disabled nothing is counted")
	require.Zero(t, b.count(t, "endpoint_trouble"))
	_, _, err = b.ResumeEndpoint(t.Context(), testActor(), "acme", e.ID, 100)
	require.NoError(t, err)
	require.Empty(t, tell(t, b.stores, b.refused(99)), "it begins anew")
	require.NotEmpty(t, tell(t, b.stores, b.refused(1)))
}

func TestASuccessInBetweenBeginsAnew(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	require.Empty(t, tell(t, b.stores, b.refused(99), b.succeeded(time.Now()), b.refused(99)))
	// In one look of the process: 99, a success, 1.
	seen := b.refused(0)
	seen.Add(b.succeeded(time.Now()))
	seen.Add(b.refused(1))
	require.Empty(t, tell(t, b.stores, seen, b.refused(98)))
	require.Empty(t, tell(t, b.stores, b.succeeded(time.Now().Add(-time.Hour))), "an older one does not count")
	require.NotEmpty(t, tell(t, b.stores, b.refused(1)))
	require.Empty(t, tell(t, b.stores, b.succeeded(time.Now())), "without failures there is nothing to be ended")
}

func TestASuccessRemovesTheRow(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	require.Empty(t, tell(t, b.stores, b.refused(3)))
	all, err := b.FailingEndpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, b.endpoint.ID, all[0].EndpointID)
	require.False(t, all[0].Disable)
	require.Empty(t, tell(t, b.stores, b.succeeded(time.Now())))
	require.Zero(t, b.count(t, "endpoint_trouble"))
}

func TestTenGivenUpWithinADayDisable(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		seen func(b *deliveryBundle) []webhook.EndpointFailures
		want string
	}{
		"ten": {func(b *deliveryBundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.exhausted(9, now.Add(-23*time.Hour)), b.exhausted(1, now)}
		}, "10 deliveries were given up within 24 hours and none was delivered, the last failed with timeout headers"},
		"nine": {func(b *deliveryBundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.exhausted(8, now), b.exhausted(1, now)}
		}, ""},
		"ten in two days": {func(b *deliveryBundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.exhausted(5, now.Add(-25*time.Hour)), b.exhausted(5, now)}
		}, ""},
		"a success after nine": {func(b *deliveryBundle) []webhook.EndpointFailures {
			return []webhook.EndpointFailures{b.exhausted(9, now.Add(-time.Hour)), b.succeeded(now.Add(-time.Minute)), b.exhausted(9, now)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupDelivery(t)
			b.changedLongAgo(t)
			require.Equal(t, c.want, tell(t, b.stores, c.seen(b)...))
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
			b := setupDelivery(t)
			b.set(t, c.settings)
			for kind, one := range map[string]struct {
				seen webhook.EndpointFailures
				want bool
			}{
				"permanent": {b.refused(3), c.permanent}, "exhausted": {b.exhausted(3, now), c.exhausted},
				"gone": {webhook.EndpointFailures{EndpointID: b.endpoint.ID, Gone: now}, c.gone},
			} {
				require.Equal(t, one.want, tell(t, b.stores, one.seen) != "", kind)
				_, err := b.login.Exec(t.Context(), `update endpoints set state = 0; delete from endpoint_trouble`)
				require.NoError(t, err)
				b.changedLongAgo(t)
			}
		})
	}
}

func TestOne410Disables(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	seen := b.refused(1)
	seen.Gone = seen.Began
	seen.Add(b.succeeded(time.Now()))
	require.Equal(t, "the receiver answered 410: it wants no more events", tell(t, b.stores, seen), "whatever else succeeds")
}

// A request that was made before the endpoint was changed says nothing about it.
func TestFailuresFromBeforeAChangeDoNotCount(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	old := b.refused(100)
	old.Gone = old.Began
	_, err := b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.URL = "https://example.com/other"
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, tell(t, b.stores, old))
	require.Zero(t, b.count(t, "endpoint_trouble"))

	require.Empty(t, tell(t, b.stores, b.refused(99)))
	_, err = b.UpdateEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID, func(e *webhook.Endpoint) error {
		e.URL = "https://example.com/third"
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, b.count(t, "endpoint_trouble"), "another URL begins anew")
}

// Two processes count one endpoint: nothing is lost between them, and one disables it.
func TestTwoProcessesCountTogether(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	stores := []*stores{b.stores, openStore(t, b.address)}
	var (
		mu      sync.Mutex
		reasons []string
		all     sync.WaitGroup
	)
	round := func(each int) {
		for _, s := range stores {
			all.Go(func() {
				for range each {
					if why := tell(t, s, b.refused(1)); why != "" {
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
	require.Equal(t, []int32{98}, query[int32](t, b.stores, `select permanent_streak from endpoint_trouble`))
	require.Empty(t, reasons)
	round(1)
	require.Len(t, reasons, 1)
	require.Contains(t, reasons[0], "100 requests")
	require.Equal(t, 1, audits(t, b.stores, "endpoint.disable"))
}

// A process that died had counted and not come to disabling; or had delivered and not
// come to say so.
func TestWhatAProcessThatDiedLeft(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.refused(100)})
	require.NoError(t, err)
	other := openStore(t, b.address)
	all, err := other.FailingEndpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.True(t, all[0].Disable)

	b.rest(t, b.accept(t), webhook.StateDelivered)
	why, err := other.DisableFailing(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	require.Empty(t, why, "something was delivered since")
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	require.Zero(t, b.count(t, "endpoint_trouble"))

	seen := b.refused(100)
	_, err = b.CountFailures(t.Context(), []webhook.EndpointFailures{seen})
	require.NoError(t, err)
	why, err = other.DisableFailing(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	require.NotEmpty(t, why, "that was before")
}

func TestDeletedEndpointsHaveNoFailures(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	require.Empty(t, tell(t, b.stores, b.refused(3)))
	require.NoError(t, b.DeleteEndpoint(t.Context(), testActor(), "acme", b.endpoint.ID))
	require.Zero(t, b.count(t, "endpoint_trouble"))
	require.Empty(t, tell(t, b.stores, b.refused(300)))
	require.Zero(t, b.count(t, "endpoint_trouble"))
	require.NoError(t, b.DeleteTenant(t.Context(), testActor(), "acme"))
}

// However what was seen is put together before it is written, the row is the same.
func TestFailuresAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		start := time.Now().Truncate(time.Minute)
		settings := webhook.DefaultAutoDisable()
		var one, many failures
		var gathered *webhook.EndpointFailures
		flush := func() {
			if gathered != nil {
				many.add(gathered, settings, start.Add(-time.Hour))
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
			one.add(&seen, settings, start.Add(-time.Hour))
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
		require.Equal(rt, one.streak, many.streak)
		require.Equal(rt, one.empty(), many.empty())
		require.True(rt, slices.Equal(one.exhausted, many.exhausted))
		if !one.empty() {
			require.Equal(rt, one.since, many.since)
			require.Equal(rt, one.reason, many.reason)
		}
	})
}

// The minutes of a day are all that is kept, however much is given up.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	var row failures
	settings := webhook.AutoDisable{Enabled: true, Exhausted24h: 1_000_000, PermanentStreak: 1}
	at := time.Now()
	for range 5000 {
		at = at.Add(40 * time.Second)
		row.add(&webhook.EndpointFailures{Exhausted: 1000, First: at, Last: at, Began: at}, settings, time.Time{})
	}
	require.LessOrEqual(t, len(row.minutes), 24*60+1)
	require.Greater(t, len(row.minutes), 23*60)
	require.Contains(t, row.why(settings, at), "000 deliveries were given up within 24 hours and none was delivered")
}
