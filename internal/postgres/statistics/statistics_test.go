package statistics_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// countsOf has a different number in every counter.
func countsOf(base int64) (c webhook.Counts) {
	next := base
	for _, part := range [][]int64{c.Attempts[:], {0}, {0}, c.Ended[:], c.Latency[:]} {
		for i := range part {
			next++
			part[i] = next
		}
	}
	c.FirstAttempts, c.FirstDelivered, c.FilterMatched, c.Filtered = next+1, next+2, next+3, next+4
	return c
}

func times(n int64, c webhook.Counts) (sum webhook.Counts) {
	for range n {
		sum.Add(&c)
	}
	return sum
}

// flushOf is a flush of one endpoint with its totals, as a process makes it.
func flushOf(writer byte, seq int64, tenant string, id webhook.EndpointID, at time.Time, c webhook.Counts) webhook.StatisticsFlush {
	at = at.UTC().Truncate(time.Minute)
	return webhook.StatisticsFlush{Writer: [16]byte{writer}, Seq: seq, Rows: []webhook.StatisticsRow{
		{Minute: at, Counts: c}, {TenantID: tenant, Minute: at, Counts: c}, {TenantID: tenant, EndpointID: id, Minute: at, Counts: c},
	}}
}

func read(t *testing.T, s *storetest.Stores, tenant string, id webhook.EndpointID, from, until time.Time, step time.Duration) []webhook.StatisticsPoint {
	t.Helper()
	points, err := s.ReadStatistics(t.Context(), webhook.StatisticsQuery{TenantID: tenant, EndpointID: id, Since: from, Until: until, Step: step})
	require.NoError(t, err)
	return points
}

// What several workers write for the same minutes at once adds up, in every counter, and a flush that is written again
// counts once.
func TestConcurrentFlushesAddUp(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	const writers, flushes, endpoints = 4, 10, 20
	minute := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	counts := countsOf(0)
	ids := make([]webhook.EndpointID, endpoints)
	for i := range ids {
		ids[i] = webhook.NewEndpointID()
	}
	var group errgroup.Group
	for w := range byte(writers) {
		store := storetest.OpenStore(t, b.Address)
		group.Go(func() error {
			for seq := range int64(flushes) {
				f := webhook.StatisticsFlush{Writer: [16]byte{w + 1}, Seq: seq + 1}
				for i := range ids { // each writer begins with another endpoint
					id := ids[(i+int(w)*5)%len(ids)]
					f.Rows = append(f.Rows, flushOf(0, 0, "acme", id, minute.Add(time.Duration(seq%2)*time.Minute), counts).Rows[2])
				}
				for range 2 { // the first answer may have been lost
					if err := store.AddStatistics(t.Context(), f); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	want := times(writers*flushes/2, counts)
	for _, id := range ids {
		require.Equal(t, []webhook.StatisticsPoint{{At: minute, Counts: want}, {At: minute.Add(time.Minute), Counts: want}},
			read(t, b.Stores, "acme", id, minute, minute.Add(time.Hour), time.Minute))
		require.Equal(t, []webhook.StatisticsPoint{{At: minute, Counts: times(2, want)}},
			read(t, b.Stores, "acme", id, minute, minute.Add(time.Hour), time.Hour))
	}
	require.Empty(t, storetest.Query[string](t, b.Stores, `
		select tableoid::regclass::text from statistics_minutes where tableoid = 'statistics_minutes_default'::regclass limit 1`))
}

// A flush is written whole or not at all, and one that failed can be written again.
func TestAFlushIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	now := time.Now()
	_, err := b.Pool().Exec(t.Context(), `alter table statistics_minutes add check (attempt_other < 1000)`)
	require.NoError(t, err)
	f := flushOf(1, 1, "acme", b.Subscriber.ID, now, countsOf(0))
	f.Rows[2].Counts.Attempts[webhook.ClassOther] = 1000
	require.Error(t, b.AddStatistics(t.Context(), f))
	require.Zero(t, b.Count(t, "statistics_minutes"))
	require.Zero(t, b.Count(t, "statistics_writers"))
	f.Rows[2].Counts.Attempts[webhook.ClassOther] = 0
	require.NoError(t, b.AddStatistics(t.Context(), f))
	require.Equal(t, 3, b.Count(t, "statistics_minutes"))
	require.NoError(t, b.AddStatistics(t.Context(), webhook.StatisticsFlush{Writer: [16]byte{1}, Seq: 2}), "nothing is left of it")
}

// A counter of 0 takes no room.
func TestZeroIsStoredAsNull(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	var one webhook.Counts
	one.Attempts[webhook.ClassDNS] = 1
	for seq := range int64(2) {
		require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, seq+1, "acme", b.Subscriber.ID, time.Now(), one)))
	}
	require.Equal(t, []int{1, 1, 1}, storetest.Query[int](t, b.Stores, `select num_nonnulls(attempt_delivered, attempt_http_4xx, attempt_http_5xx,
		attempt_timeout, attempt_connection, attempt_dns, attempt_tls, attempt_other, first_attempts, ended_delivered, latency_1, latency_30000)
		from statistics_minutes`))
}

// Each sees what is theirs: a tenant its own rows, the operator the totals of the installation.
func TestStatisticsOfOthersAreNotSeen(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	now := time.Now()
	other := webhook.NewEndpointID()
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, 1, "acme", b.Subscriber.ID, now, countsOf(0))))
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, 2, "other", other, now, countsOf(100))))
	all := func(tenant string, id webhook.EndpointID) []webhook.StatisticsPoint {
		return read(t, b.Stores, tenant, id, now.Add(-time.Hour), now.Add(time.Hour), time.Minute)
	}
	minute := now.UTC().Truncate(time.Minute)
	acme, theirs := []webhook.StatisticsPoint{{At: minute, Counts: countsOf(0)}}, []webhook.StatisticsPoint{{At: minute, Counts: countsOf(100)}}
	require.Equal(t, acme, all("acme", b.Subscriber.ID))
	require.Equal(t, acme, all("acme", webhook.EndpointID{}))
	require.Empty(t, all("acme", other))
	require.Equal(t, theirs, all("other", other))
	sum := countsOf(0)
	sum.Add(&theirs[0].Counts)
	require.Equal(t, []webhook.StatisticsPoint{{At: minute, Counts: sum}}, all("", webhook.EndpointID{}))
	require.Empty(t, all("", other))

	// Without a condition, row-level security decides: an operator sees totals, and no endpoint.
	require.NoError(t, b.AsOperator().InTx(t.Context(), "look", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select tenant_id from statistics_minutes`)
		require.NoError(t, err)
		seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.ElementsMatch(t, []string{"", "acme", "other"}, seen)
		return err
	}))
}

// The health of an endpoint has its attempts of the last 15 minutes.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	now := time.Now()
	for i, ago := range []time.Duration{0, 10 * time.Minute, 20 * time.Minute} {
		require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, int64(i+1), "acme", b.Subscriber.ID, now.Add(-ago), countsOf(0))))
	}
	h, _, err := b.Health(t.Context(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	require.Equal(t, times(2, countsOf(0)), h.History)
	id := b.AddEndpoint(t, "user.*").ID
	h, _, err = b.Health(t.Context(), "acme", id, "")
	require.NoError(t, err)
	require.Zero(t, h.History)
}

// A filter that kept out each of the last 1,000 events is known, however many it matched before, and not one that matched one of them.
func TestVerdictsOfTheLastEvents(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	now, seq := time.Now(), int64(0)
	say := func(ago time.Duration, matched, filtered int64) {
		seq++
		counts := webhook.Counts{FilterMatched: matched, Filtered: filtered}
		require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, seq, "acme", b.Subscriber.ID, now.Add(-ago), counts)))
	}
	verdicts := func() [2]int64 {
		h, _, err := b.Health(t.Context(), "acme", b.Subscriber.ID, "")
		require.NoError(t, err)
		return [2]int64{h.Verdicts.FilterMatched, h.Verdicts.Filtered}
	}
	say(30*time.Hour, 500, 1)
	require.Zero(t, verdicts(), "it has no filter")
	b.Exec(t, `update endpoints set filter = '{"tags":"x"}', updated_at = now() - interval '40 hours'`)
	require.Equal(t, [2]int64{500, 1}, verdicts())
	say(2*time.Hour, 0, 600)
	require.Equal(t, [2]int64{500, 601}, verdicts(), "600 are not yet a thousand")
	say(time.Hour, 0, 399)
	require.Equal(t, [2]int64{500, 1000}, verdicts())
	say(time.Minute, 0, 1)
	require.Equal(t, [2]int64{0, 1000}, verdicts(), "the minutes before have no part in the last thousand")
	say(39*time.Hour, 7, 7)
	require.Equal(t, [2]int64{0, 1000}, verdicts())
	b.Exec(t, `update endpoints set updated_at = now() - interval '90 minutes'`)
	require.Equal(t, [2]int64{0, 400}, verdicts(), "what was said before the change was perhaps said by another filter")
}
