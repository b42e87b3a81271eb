package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// noon is a fixed day far from the tests' own rows.
func noon() time.Time { return time.Date(2031, 12, 30, 12, 0, 0, 0, time.UTC) }

// eventIDAt is an event's id of a time.
func eventIDAt(t time.Time, rest byte) webhook.EventID {
	id := webhook.EventID(postgres.IDsFrom(t))
	copy(id[6:], bytes.Repeat([]byte{rest}, 10))
	return id
}

func insertEvent(t *testing.T, s *storetest.Stores, id webhook.EventID) {
	t.Helper()
	_, err := s.Pool().Exec(t.Context(), `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		values ($1, 'acme', 'a', '', '', '{}', now())`, [16]byte(id))
	require.NoError(t, err)
}

func partitionOf(t *testing.T, s *storetest.Stores, id webhook.EventID) string {
	t.Helper()
	return storetest.Query[string](t, s, `select tableoid::regclass::text from events where id = $1`, [16]byte(id))[0]
}

func TestPartitionsAreMadeAroundTheDay(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	require.NoError(t, s.EnsurePartitions(t.Context(), noon()))
	days := []string{"20311229", "20311230", "20311231", "20320101", "20320102"}
	for _, table := range []string{"events", "deliveries", "attempts"} {
		want := make([]string, 0, len(days)+1)
		for _, d := range days {
			want = append(want, table+"_"+d)
		}
		require.Equal(t, append(want, table+"_default"), storetest.PartitionsOf(t, s, table))
	}

	require.NoError(t, s.EnsurePartitions(t.Context(), noon().Add(postgres.Day)))
	require.Contains(t, storetest.PartitionsOf(t, s, "events"), "events_20320103")

	midnight := time.Date(2031, 12, 31, 0, 0, 0, 0, time.UTC)
	for name, id := range map[string]webhook.EventID{
		"events_20311230": eventIDAt(midnight.Add(-time.Millisecond), 0xff),
		"events_20311231": eventIDAt(midnight, 0),
		"events_20320103": eventIDAt(time.Date(2032, 1, 3, 23, 59, 59, 999e6, time.UTC), 0xff),
		"events_default":  eventIDAt(time.Date(2032, 1, 4, 0, 0, 0, 0, time.UTC), 0),
	} {
		insertEvent(t, s, id)
		require.Equal(t, name, partitionOf(t, s, id))
	}
	require.Equal(t, []bool{true}, storetest.Query[bool](t, s, `
		select count(*) = 1 from pg_index i join pg_inherits p on p.inhrelid = i.indexrelid
		where i.indrelid = 'events_20311230'::regclass and i.indisprimary`), "the parent's indexes have taken the partition's in")
}

func TestManyProcessesMayMakePartitionsAtOnce(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	var group errgroup.Group
	for _, store := range []*storetest.Stores{s, storetest.OpenStore(t, address), storetest.OpenStore(t, address)} {
		for range 2 {
			group.Go(func() error { return store.EnsurePartitions(t.Context(), noon()) })
		}
	}
	require.NoError(t, group.Wait())
	require.Len(t, storetest.PartitionsOf(t, s, "attempts"), 6)
}

func TestADayWithRowsInTheDefaultPartitionStaysThere(t *testing.T) {
	t.Parallel()
	_, address := storetest.SetupStore(t)
	var log bytes.Buffer
	s, err := storetest.OpenStores(t.Context(), stores.Config{URL: address, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer s.Close()
	early := eventIDAt(noon(), 1)
	insertEvent(t, s, early)

	require.NoError(t, s.EnsurePartitions(t.Context(), noon()))
	require.NotContains(t, storetest.PartitionsOf(t, s, "events"), "events_20311230")
	require.Contains(t, storetest.PartitionsOf(t, s, "events"), "events_20311231")
	require.Contains(t, storetest.PartitionsOf(t, s, "deliveries"), "deliveries_20311230")
	require.Contains(t, log.String(), "partition=events_20311230")
	require.Equal(t, "events_default", partitionOf(t, s, early))
	require.Empty(t, storetest.Query[string](t, s, `select tablename from pg_tables where schemaname = current_schema() and tablename = 'events_20311230'`))
	insertEvent(t, s, eventIDAt(noon(), 2))
}

// A row that comes in between the look into the DEFAULT partition and the lock on it.
func TestADayThatGetsARowWhileItsPartitionIsMadeStaysInTheDefault(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	tx, err := s.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	id := eventIDAt(noon(), 1)
	_, err = tx.Exec(t.Context(), `
		insert into events (id, tenant_id, type, payload, payload_sha256, endpoint_ids, created_at)
		values ($1, 'acme', 'a', '', '', '{}', now())`, [16]byte(id))
	require.NoError(t, err)

	made := make(chan error, 1)
	events := postgres.PartitionedTables()[0]
	go func() {
		made <- postgres.EnsurePartition(t.Context(), s.Pool(), s.Log, events.Partition(noon().Truncate(postgres.Day)))
	}()
	storetest.AwaitTableLock(t, s.Pool(), "events_default")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-made)
	require.Equal(t, []string{"events_default"}, storetest.PartitionsOf(t, s, "events"))
	require.Equal(t, "events_default", partitionOf(t, s, id))
}

// The partition of today is made while an event is on its way into the DEFAULT one, as
// on the first start of an installation: the event is stored all the same.
func TestAnEventOnItsWayWhileItsPartitionIsMadeIsStored(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	storetest.AttachPartition(t, b.Stores, "events", func() error {
		_, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
		return err
	})
	require.Equal(t, []string{"the_day"}, storetest.Query[string](t, b.Stores, `select tableoid::regclass::text from events`))
}

func TestPartitionsOfAMissingTableAreAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	_, err := s.Pool().Exec(t.Context(), `drop table events cascade`)
	require.NoError(t, err)
	require.ErrorContains(t, s.EnsurePartitions(t.Context(), noon()), "events")
	require.Len(t, storetest.PartitionsOf(t, s, "attempts"), 6, "the other days have one")
}

func TestIDsFromIsBelowEveryIDOfItsTimeAndAboveEveryEarlierOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, 1<<48-2).Draw(t, "ms")
		rest := rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "rest")
		of := func(ms int64) uuid.UUID {
			id := postgres.IDsFrom(time.UnixMilli(ms))
			copy(id[6:], rest)
			return id
		}
		bound := postgres.IDsFrom(time.UnixMilli(ms))
		at, before := of(ms), of(ms-1)
		require.LessOrEqual(t, bytes.Compare(bound[:], at[:]), 0)
		require.Negative(t, bytes.Compare(before[:], bound[:]))
		require.Equal(t, time.UnixMilli(ms).UTC(), webhook.EventID(bound).Time())
	})
}

func TestMaintainMakesThePartitionsOfToday(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	var group errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	group.Go(func() error { s.Maintain(ctx); return nil })
	require.Eventually(t, func() bool { return len(storetest.PartitionsOf(t, s, "attempts")) == 6 }, storetest.Eventually, storetest.Poll)
	stop()
	require.NoError(t, group.Wait())
}
