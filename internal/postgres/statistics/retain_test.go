package statistics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// noon is a fixed time far from the tests' own rows: the noon of a Friday.
func noon() time.Time { return time.Date(2031, 1, 3, 12, 0, 0, 0, time.UTC) }

// Hours are summed up a day after they have ended, minutes go after two days and hours after 90, as whole partitions. What is
// read does not change meanwhile.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	id := b.Subscriber.ID
	require.NoError(t, b.EnsurePartitions(t.Context(), noon()))
	require.Equal(t, []string{
		"statistics_minutes_20310102", "statistics_minutes_20310103", "statistics_minutes_20310104", "statistics_minutes_20310105",
		"statistics_minutes_20310106", "statistics_minutes_default",
	}, storetest.PartitionsOf(t, b.Stores, "statistics_minutes"))
	require.Equal(t, []string{"statistics_hours_20301230", "statistics_hours_20310106", "statistics_hours_default"},
		storetest.PartitionsOf(t, b.Stores, "statistics_hours"), "weeks begin on Mondays")
	seq := int64(0)
	add := func(at time.Time) {
		seq++
		require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, seq, "acme", id, at, countsOf(0))))
	}
	for _, at := range []time.Time{noon(), noon().Add(time.Minute), noon().Add(59 * time.Minute), noon().Add(3 * time.Hour)} {
		add(at)
	}
	want := []webhook.StatisticsPoint{{At: noon(), Counts: times(3, countsOf(0))}, {At: noon().Add(3 * time.Hour), Counts: countsOf(0)}}
	retain := func(now time.Time, dropped int) {
		t.Helper()
		n, err := b.RetainStatistics(t.Context(), now)
		require.NoError(t, err)
		require.Equal(t, dropped, n)
		for _, of := range []struct {
			tenant string
			id     webhook.EndpointID
		}{{"acme", id}, {"acme", webhook.EndpointID{}}, {"", webhook.EndpointID{}}} {
			require.Equal(t, want, read(t, b.Stores, of.tenant, of.id, noon(), noon().Add(4*time.Hour), time.Hour))
		}
	}
	retain(noon().Add(26*time.Hour-1), 0)
	require.Zero(t, b.Count(t, "statistics_hours"), "a process may still write to that hour")
	retain(noon().Add(26*time.Hour), 0)
	require.Equal(t, 3, b.Count(t, "statistics_hours"))
	retain(noon().Add(29*time.Hour), 0)
	retain(noon().Add(29*time.Hour), 0)
	require.Equal(t, 6, b.Count(t, "statistics_hours"))
	require.Equal(t, 12, b.Count(t, "statistics_minutes"))

	retain(noon().Add(60*time.Hour-1), 1) // only the day before
	require.Equal(t, 12, b.Count(t, "statistics_minutes"))
	retain(noon().Add(60*time.Hour), 1)
	require.Zero(t, b.Count(t, "statistics_minutes"))

	end := time.Date(2031, 1, 6, 0, 0, 0, 0, time.UTC) // of the week
	retain(end.Add(webhook.HoursKept-1), 3)            // all minutes
	want = []webhook.StatisticsPoint{}
	retain(end.Add(webhook.HoursKept), 1)
	require.Zero(t, b.Count(t, "statistics_hours"))
}

// An hour of many endpoints is summed up in statements that are bounded each, whatever their number; the row of the whole installation,
// which says that the hour is done, comes last. What was summed up before a failure is not counted twice.
func TestAnHourIsSummedUpInPages(t *testing.T) {
	t.Parallel()
	made := storetest.Setup(t)
	require.NoError(t, made.EnsurePartitions(t.Context(), noon()))
	const endpoints = 2500
	made.Exec(t, `
		insert into statistics_minutes (tenant_id, endpoint_id, at, attempt_delivered)
		select 't' || n % 7, md5(n::text)::uuid, $1::timestamptz + m * interval '7 minutes', 1 from generate_series(1, $2::int) n, generate_series(-5, 30) m
		union all
		select '', '00000000-0000-0000-0000-000000000000', $1::timestamptz + m * interval '7 minutes', $2::int from generate_series(0, 8) m`, noon(), endpoints)
	made.Exec(t, `
		insert into statistics_hours (tenant_id, endpoint_id, at, attempt_delivered) select 't1', md5('1')::uuid, $1, 9`, noon())
	stores, recorder := storetest.Record(t, made.Address)
	recorder.Take(t)
	_, err := stores.RetainStatistics(t.Context(), noon().Add(26*time.Hour))
	require.NoError(t, err)
	for _, e := range recorder.Take(t) {
		require.LessOrEqual(t, e.Blocks, 40*1000, e.Text)
	}
	sum := storetest.Query[int64](t, made.Stores, `select sum(attempt_delivered) from statistics_hours where tenant_id <> ''`)
	require.Equal(t, []int64{9 * endpoints}, sum, "nine of its minutes are in the hour")
	total := storetest.Query[int64](t, made.Stores, `select sum(attempt_delivered) from statistics_hours where tenant_id = ''`)
	require.Equal(t, []int64{9 * endpoints}, total)
}

// Rows in the DEFAULT partitions are found, summed up and removed like any others.
func TestRetentionOfTheDefaultPartitions(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	id := b.Subscriber.ID
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, 1, "acme", id, noon(), countsOf(0))))
	require.NoError(t, b.EnsurePartitions(t.Context(), noon()))
	require.NotContains(t, storetest.PartitionsOf(t, b.Stores, "statistics_minutes"), "statistics_minutes_20310103")
	hour := []webhook.StatisticsPoint{{At: noon(), Counts: countsOf(0)}}
	require.Equal(t, hour, read(t, b.Stores, "acme", id, noon(), noon().Add(time.Hour), time.Hour))
	_, err := b.RetainStatistics(t.Context(), noon().Add(webhook.MinutesKept+2*postgres.Day))
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "statistics_minutes"))
	require.Equal(t, hour, read(t, b.Stores, "acme", id, noon(), noon().Add(time.Hour), time.Hour))
	_, err = b.RetainStatistics(t.Context(), noon().Add(webhook.HoursKept+8*postgres.Day))
	require.NoError(t, err)
	require.Zero(t, b.Count(t, "statistics_hours"))
}

// The statistics of a deleted tenant are removed, after which its id is free. Those of others stay, as do the totals and the
// last flushes of processes that run.
func TestStatisticsOfADeletedTenantAreRemoved(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	now := time.Now()
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, 1, "acme", b.Subscriber.ID, now.Add(-30*time.Hour), countsOf(0))))
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(1, 2, "acme", b.Subscriber.ID, now, countsOf(0))))
	require.NoError(t, b.AddStatistics(t.Context(), flushOf(2, 1, "other", webhook.NewEndpointID(), now, countsOf(0))))
	retain := func() {
		t.Helper()
		_, err := b.RetainStatistics(t.Context(), now)
		require.NoError(t, err)
	}
	retain()
	require.Equal(t, 3, b.Count(t, "statistics_hours"))
	b.DeleteAcme(t)
	retain()
	require.Equal(t, 4, b.CountOf(t, "statistics_minutes where tenant_id = 'acme'"), "a worker may be about to write some")
	b.DeletedLongAgo(t)
	b.RequirePruned(t, 0)
	retain()
	require.Zero(t, b.CountOf(t, "statistics_minutes where tenant_id = 'acme'"))
	require.Zero(t, b.CountOf(t, "statistics_hours where tenant_id = 'acme'"))
	require.Equal(t, 4, b.Count(t, "statistics_minutes"))
	require.Equal(t, 2, b.Count(t, "statistics_writers"))
	b.RequirePruned(t, 1)

	_, err := b.Pool().Exec(t.Context(), `update statistics_writers set written_at = now() - interval '3 days' where seq = 1`)
	require.NoError(t, err)
	retain()
	require.Equal(t, []int64{2}, storetest.Query[int64](t, b.Stores, `select seq from statistics_writers`))
}
