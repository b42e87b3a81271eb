package stores_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/notifications"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// addWork adds what loops look for: commands of all tenants, most of them of the large one, queued replays, due releases, and
// held deliveries to be given up.
func addWork(t *testing.T, l *storetest.Large) {
	t.Helper()
	l.Exec(t, `update deliveries set command = 1, command_id = 1, commanded_at = now() - interval '1 hour'
		where id in (select id from deliveries order by id desc limit 5000)`)
	l.Exec(t, `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor, state, relay_at)
		select gen_random_uuid(), id, 1, now(), 100, 100, false, '00000000-0000-0000-0000-000000000000', case when n > 1 or id > 'small-3' then 4 else 0 end,
			case when n = 1 then now() end
		from tenants, generate_series(1, 100) n`)
	l.Exec(t, `update deliveries set state = 2, give_up_at = now() - interval '1 hour' where id = any(array(select id from deliveries order by id limit 5000))`)
	l.Exec(t, `update deliveries set state = 2, give_up_at = now() + interval '1 hour' where id = any(array(
		select id from deliveries where command = 0 and state > 2 order by id desc limit 5000))`)
	l.Exec(t, `
		with added as (
			insert into endpoints (id, tenant_id, url, event_types, timeout_ns, max_in_flight, rate_limit, circuit_breaker, auto_disable, auto_replay,
				signature, version)
			select gen_random_uuid(), case when n <= 10000 then tenant_id else (select id from tenants order by id offset n % 60 limit 1) end, url,
				event_types, timeout_ns, max_in_flight, rate_limit, circuit_breaker, auto_disable, auto_replay, signature, version
			from endpoints, generate_series(1, 12000) n where id = $1 returning id, tenant_id)
		insert into releases (endpoint_id, tenant_id, next_at) select id, tenant_id, now() - interval '1 hour' from added`, l.Subscriber.ID)
	l.Exec(t, `insert into lines select $1, gen_random_uuid(), $2, 1, 1, (now() at time zone 'utc')::date - n / 1000 from generate_series(1, 21998) n`,
		l.Subscriber.ID, l.Tenant)
	l.Vacuum(t)
}

// loopVisits has what the relay and the metrics read, round after round.
func loopVisits() []visit {
	const (
		perTaken = 80     // blocks: the row is written anew, and so are its entries in the indexes
		perTurn  = 4 * 36 // of a tenant, or of an id: in each partition
	)
	return []visit{
		{name: "commands of the relay", most: 200*perTaken + 32*perTurn, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			found, err := l.TakeCommands(t.Context(), 200)
			require.NoError(t, err)
			require.Len(t, found, 200)
		}},
		{name: "numbers of lines, with a claim", most: 60 * perTaken, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, err := l.UpdateEndpoint(t.Context(), storetest.TestActor(), l.Small, l.Endpoint, func(e *webhook.Endpoint) error {
				e.Ordering.By = webhook.OrderingNumber
				return nil
			})
			require.NoError(t, err)
			e := storetest.NewEvent("order.paid")
			e.TenantID, e.OrderingKey, e.EndpointIDs = l.Small, "a", []webhook.EndpointID{l.Endpoint}
			last := int64(0)
			for range 2 {
				accepted, err := l.Accept(t.Context(), e)
				require.NoError(t, err)
				start := accepted.Deliveries[0]
				require.Greater(t, start.Sequence.Number, last)
				last = start.Sequence.Number
				claimed, err := l.Claim(t.Context(), webhook.Claim{
					Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, Claimant: "me", For: time.Minute,
				})
				require.NoError(t, err)
				require.Equal(t, start.Sequence, claimed.Sequence)
			}
		}},
		{name: "idle lines", most: 1000 * 8, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			removed, err := l.PruneLines(t.Context(), 20*24*time.Hour)
			require.NoError(t, err)
			require.Contains(t, []int64{999, 0}, removed, "they are there once")
		}},
		{name: "queued replays", most: 60 * perTurn, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			require.NoError(t, l.AdmitReplays(t.Context()))
		}},
		{name: "replays of the relay", most: 200 * perTaken, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, err := l.TakeReplays(t.Context(), 200)
			require.NoError(t, err)
		}},
		{name: "releases that are due, of many endpoints", most: 64 * (3 + 16*(3+3*8)), call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			var lanes []int
			for lane := range webhook.Lanes {
				lanes = append(lanes, lane)
			}
			due, err := l.DueReleases(t.Context(), lanes, 200)
			require.NoError(t, err)
			require.Len(t, due, 200)
		}},
		{name: "held deliveries to be given up, of many tenants", most: 40 * perTurn, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			l.Relayed(t) // what is given up waits for new events
			starts, err := l.ReleaseExpired(t.Context(), 200)
			require.NoError(t, err)
			require.Greater(t, len(starts), 100)
		}},
		{name: "dead letters of one workflow", most: 100 * perTurn, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			l.Exec(t, `update deliveries set workflow_id = 'dead/fanout/x/0' where id = any(array(select id from deliveries where state = 4 limit 100))`)
			ids := storetest.Query[[16]byte](t, l.Stores, `select id from deliveries where workflow_id = 'dead/fanout/x/0'`)
			refs, runs := make([]webhook.Ref, len(ids)), make([]int, len(ids))
			for i := range ids {
				refs[i].DeliveryID, runs[i] = ids[i], 1
			}
			require.NoError(t, l.KeepIn(t.Context(), "dead/fanout/x/1", refs, runs))
			_, err := l.DeliveryStatuses(t.Context(), refs)
			require.NoError(t, err)
		}},
		{name: "what needs attention", most: 2 * 1000 * 4, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, err := l.TroubledTenants(t.Context(), 20)
			require.NoError(t, err)
		}},
		{name: "what has not arrived where attention is needed", most: 50 * (perTurn + 3*webhook.MaxListed), call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			ids := []webhook.EndpointID{l.Subscriber.ID}
			for _, id := range storetest.Query[[16]byte](t, l.Stores, `select id from endpoints order by id limit 49`) {
				ids = append(ids, id)
			}
			found, err := l.UndeliveredOf(t.Context(), l.Tenant, ids)
			require.NoError(t, err)
			require.NotZero(t, found[l.Subscriber.ID].GivenUp)
		}},
		{name: "counts of a tenant", most: 2 * webhook.MaxAttention, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			n, err := l.OpenCounts(t.Context(), l.Tenant)
			require.NoError(t, err)
			require.NotZero(t, n.DeadLetters)
		}},
		{name: "a look at endpoints for notifications", most: notifications.LookedAt * (perTurn + 40), call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			l.Exec(t, `update endpoints set state = 1 where id = any(array(select id from endpoints where id <> $1 order by id limit 100))`, l.Subscriber.ID)
			l.Exec(t, `insert into endpoint_trouble (endpoint_id, since) select id, now() from endpoints on conflict do nothing`)
			found, next, err := l.Notifications.Look(t.Context(), webhook.EndpointID{})
			require.NoError(t, err)
			require.Len(t, found, notifications.LookedAt)
			require.False(t, next.IsZero())
		}},
		{name: "notifications", most: 4000, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			n := l.Notifications
			s, err := n.Put(t.Context(), storetest.TestActor(), l.Tenant, webhook.NotificationInput{Channels: []webhook.ChannelInput{
				{Kind: webhook.ChannelEmail, Target: "ops@example.com", Notices: webhook.Notices(0).With(webhook.NoticeDeadLetters)},
				{Kind: webhook.ChannelSlack, Target: "https://hooks.example", Notices: webhook.Notices(0).With(webhook.NoticeDeadLetters)},
			}})
			require.NoError(t, err)
			require.Len(t, s.Channels, 2)
			l.Exec(t, `update notification_channels set state = 1`)
			l.Exec(t, `update notification_settings set digest_at = now()`)
			_, err = n.SendDigests(t.Context(), 20)
			require.NoError(t, err)
			_, err = l.Mails.TakeMails(t.Context(), 10, time.Minute)
			require.NoError(t, err)
			_, err = n.TakeChanges(t.Context(), 100)
			require.NoError(t, err)
		}},
		{name: "counts of the metrics", call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			countAll(t, l.Bundle)
		}},
		{name: "count of the releases", most: 10_001, call: func(t *testing.T, l *storetest.Large) {
			t.Helper()
			_, _, err := l.ReleaseDepth(t.Context())
			require.NoError(t, err)
		}},
	}
}

func countAll(t *testing.T, b *storetest.Bundle) {
	t.Helper()
	_, _, err := b.OutboxDepth(t.Context())
	require.NoError(t, err)
	_, _, err = b.HeldDepth(t.Context())
	require.NoError(t, err)
	_, err = b.RetryDepth(t.Context())
	require.NoError(t, err)
	_, err = b.ReplayRate(t.Context())
	require.NoError(t, err)
}

// A count of the metrics reads no more when more waits than it counts.
func TestCountsOfABacklogAreBounded(t *testing.T) {
	if os.Getenv("EVERPOST_TEST_LONG") == "" {
		t.Skip("stores 660,000 rows: set EVERPOST_TEST_LONG")
	}
	t.Parallel()
	b := storetest.Setup(t)
	read := func() (most int) {
		t.Helper()
		watched, other := storetest.Record(t, b.Address)
		countAll(t, &storetest.Bundle{Stores: watched, Address: b.Address})
		for _, e := range other.Take(t) {
			t.Logf("%7d blocks: %.60s", e.Blocks, words(e.Text))
			most = max(most, e.Blocks)
		}
		return most
	}
	const batch, rows = 2_500, deliveries.MaxCountedOverall * 11 / 10
	more := func() {
		t.Helper()
		for range rows / batch {
			b.Exec(t, `insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, due_at, give_up_at)
				select gen_random_uuid(), md5(i::text)::uuid, md5((i % 1000)::text)::uuid, 'acme', 'order.paid', now(), 1, 1, 1 + i % 2, 'backlog',
					now() + i * interval '1 second', now() + interval '3 days'
				from generate_series(1, $1::int) i`, 2*batch)
			b.Exec(t, `insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
				select gen_random_uuid(), md5(i::text)::uuid, md5((i % 9)::text)::uuid, 'acme', 'order.paid', 1, now(), now() + interval '3 days', now()
				from generate_series(1, $1::int) i`, batch)
		}
	}
	for range 2 {
		more()
		require.Less(t, read(), 2*deliveries.MaxCountedOverall, "a block for each row that is counted, where autovacuum is behind")
	}
}
