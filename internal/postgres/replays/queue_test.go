package replays_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// limited is a bundle in which so many replays run at a time.
func limited(t *testing.T, perTenant, overall int) *storetest.Bundle {
	t.Helper()
	b := storetest.Setup(t)
	s, err := storetest.OpenStores(t.Context(), stores.Config{
		URL: b.Address, MaxConns: 8, Sealer: storetest.NewTestSealer(t), MakeSecret: storetest.TestSecret,
		Limits: webhook.Limits{RunningReplays: perTenant}, RunningReplays: overall,
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &storetest.Bundle{Stores: s, Address: b.Address, Subscriber: b.Subscriber}
}

// queueModel is who runs and who waits, by tenant, in the order of creation.
type queueModel struct {
	limits          map[string]int
	overall         int
	running, queued map[string][]webhook.ReplayID
}

func (m *queueModel) admit() {
	for n := m.all(); n < m.overall; n++ {
		next := ""
		for tenant, waiting := range m.queued {
			if len(waiting) == 0 || len(m.running[tenant]) >= m.limits[tenant] {
				continue
			}
			if next == "" || cmp.Or(cmp.Compare(len(m.running[tenant]), len(m.running[next])), bytes.Compare(waiting[0][:], m.queued[next][0][:])) < 0 {
				next = tenant
			}
		}
		if next == "" {
			return
		}
		m.running[next] = append(m.running[next], m.queued[next][0])
		m.queued[next] = m.queued[next][1:]
	}
}

func (m *queueModel) all() (n int) {
	for _, of := range m.running {
		n += len(of)
	}
	return n
}

// However replays come and go: no more run than may, of a tenant and of all; none waits while it may run; the tenant of which the fewest run is
// next, and its oldest replay.
func TestQueuedReplaysAreAdmitted(t *testing.T) {
	t.Parallel()
	const perTenant, overall = 3, 7
	ctx := t.Context()
	b := limited(t, perTenant, overall)
	m := queueModel{limits: map[string]int{}, overall: overall}
	for i, own := range []int{0, 1, 5, 0, 0} {
		tenant := fmt.Sprint("t", i)
		_, err := b.Pool().Exec(t.Context(), `insert into tenants (id, name, limits) values ($1, $1,
			case when $2 = 0 then '{}'::jsonb else jsonb_build_object('running_replays', $2::int) end)`, tenant, own)
		require.NoError(t, err)
		m.limits[tenant] = cmp.Or(own, perTenant)
	}
	tenants := slices.Sorted(maps.Keys(m.limits))
	store := func(t require.TestingT, tenant string, source webhook.ReplaySource, state webhook.ReplayState) webhook.ReplayID {
		id := webhook.NewReplayID()
		_, err := b.Pool().Exec(ctx, `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor, state)
			values ($1, $2, $3, now(), 1, 1, false, '00000000-0000-0000-0000-000000000000', $4)`, id, tenant, int16(source), int16(state))
		require.NoError(t, err)
		return id
	}
	rapid.Check(t, func(t *rapid.T) {
		_, err := b.Pool().Exec(ctx, `delete from replays`)
		require.NoError(t, err)
		m.running, m.queued = map[string][]webhook.ReplayID{}, map[string][]webhook.ReplayID{}
		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				m.queued[tenant] = append(m.queued[tenant], store(t, tenant, webhook.ReplayDeadLetters, webhook.ReplayQueued))
				slices.SortFunc(m.queued[tenant], func(a, b webhook.ReplayID) int { return bytes.Compare(a[:], b[:]) })
			},
			"end": func(t *rapid.T) {
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				if len(m.running[tenant]) == 0 {
					t.Skip("none runs")
				}
				i := rapid.IntRange(0, len(m.running[tenant])-1).Draw(t, "which")
				_, err := b.Pool().Exec(ctx, `update replays set state = 2 where id = $1`, m.running[tenant][i])
				require.NoError(t, err)
				m.running[tenant] = slices.Delete(m.running[tenant], i, i+1)
			},
			"admit": func(t *rapid.T) {
				require.NoError(t, b.AdmitReplays(ctx))
				m.admit()
				var want []webhook.ReplayID
				for _, ids := range m.running {
					want = append(want, ids...)
				}
				rows, err := b.Pool().Query(ctx, `select id from replays where state = 0`)
				require.NoError(t, err)
				got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id webhook.ReplayID, err error) {
					err = row.Scan((*[16]byte)(&id))
					return id, err
				})
				require.NoError(t, err)
				require.ElementsMatch(t, want, got)
			},
		})
	})
}

// Replays that are made at the same time, in two processes: exactly as many run as may, and the others are queued. The relay gets one when
// another has ended.
func TestReplaysAreQueued(t *testing.T) {
	t.Parallel()
	b := limited(t, 3, 50)
	b.DeadLetters(t, 1)
	var (
		all  sync.WaitGroup
		made [12]webhook.Replay
	)
	places := make(chan struct{}, 4) // as many as a tenant may make at the same time
	for i := range made {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 100}
			var err error
			if made[i], err = b.CreateReplay(t.Context(), storetest.TestActor(), r); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var running, queued []webhook.Replay
	for _, r := range made {
		stored, err := b.Replay(t.Context(), "acme", r.ID)
		require.NoError(t, err)
		require.Contains(t, []webhook.ReplayState{webhook.ReplayRunning, webhook.ReplayQueued}, stored.State)
		if stored.State == webhook.ReplayRunning {
			running = append(running, stored)
		} else {
			queued = append(queued, stored)
		}
	}
	require.Len(t, running, 3)
	st := b.ReleaseBatch(t, queued[0], 1, 1)
	require.Equal(t, []int64{0, 0}, []int64{st.Seq, st.Released})
	rate, err := b.ReplayRate(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{3, 9}, []int64{rate.Running, rate.Queued})

	slices.SortFunc(queued, func(a, b webhook.Replay) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	require.False(t, b.AskReplay(t, queued[0], webhook.ReplayCommand{Action: webhook.ReplayResume}).Command.Pending(), "it goes on by itself")
	cancelled := b.AskReplay(t, queued[1], webhook.ReplayCommand{Action: webhook.ReplayCancel})
	require.Equal(t, webhook.ReplayQueued, cancelled.State)
	_, err = b.StepReplay(t.Context(), webhook.ReplayStep{ID: queued[1].ID, Seq: 1, State: webhook.ReplayCancelled, Asked: 1, Rate: 1, CommandDone: 1})
	require.NoError(t, err)

	_, err = b.Pool().Exec(t.Context(), `update replays set relay_at = now() + interval '1 hour' where relay_at is not null`)
	require.NoError(t, err)
	step := webhook.ReplayStep{ID: running[0].ID, Seq: 1, State: webhook.ReplayPaused, Asked: 1, Rate: 1}
	_, err = b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.NoError(t, b.AdmitReplays(t.Context()))
	due, err := b.TakeReplays(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, queued[0].ID, due[0].ID, "the oldest, at once")
	require.Equal(t, webhook.ReplayRunning, due[0].State)
	require.False(t, due[0].Started, "it is not one that has lost its workflow")

	step.Seq, step.State = 2, webhook.ReplayQueued
	status, err := b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayQueued, status.State, "resumed, and there is no room")
	_, err = b.StepReplay(t.Context(), webhook.ReplayStep{ID: running[1].ID, Seq: 1, State: webhook.ReplayCompleted, Asked: 1, Rate: 1})
	require.NoError(t, err)
	step.Seq = 3
	status, err = b.StepReplay(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayRunning, status.State, "it is the oldest that waits")
	resumed, err := b.Replay(t.Context(), "acme", step.ID)
	require.NoError(t, err)
	require.True(t, resumed.Started, "its workflow has resumed it: if that is lost, it was")
	due, err = b.TakeReplays(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, due)
}

// What waits in the set and cannot be sent costs no second each: a batch goes on behind it at once.
func TestAReplayPassesOverWhatItSkips(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"of a deleted endpoint": `update deliveries d set endpoint_id = gen_random_uuid() where d.id = any($1)`,
		"whose payload was removed": `update events set payload = '', payload_removed_at = now()
			where id in (select event_id from deliveries where id = any($1))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			ids := b.DeadLetters(t, 15)
			r := b.StartReplay(t, webhook.Replay{})
			var spoilt [][16]byte
			for _, id := range ids[:12] {
				spoilt = append(spoilt, id)
			}
			b.Exec(t, spoil, spoilt)
			b.Left(t)
			st := b.ReleaseBatch(t, r, 1, 1)
			require.EqualValues(t, 1, st.Released)
			require.False(t, st.Exhausted)
			require.Equal(t, map[webhook.DeliveryID]int{ids[12]: 2}, b.Left(t))
			st = b.ReleaseBatch(t, r, 2, 5)
			require.True(t, st.Exhausted)
			require.Equal(t, []int64{3, 12, 15}, []int64{st.Released, st.Skipped, *st.Total})
		})
	}
}

// A tenant may have 1,000 replays that have not ended, and another one is refused; an automatic one is not.
func TestOpenReplaysAreBounded(t *testing.T) {
	t.Parallel()
	b := limited(t, 3, 50)
	b.DeadLetters(t, 1)
	_, err := b.Pool().Exec(t.Context(), `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor, state)
		select gen_random_uuid(), 'acme', 1, now(), 1, 1, false, '00000000-0000-0000-0000-000000000000', 4 from generate_series(1, $1::int)`,
		webhook.MaxOpenReplays-1)
	require.NoError(t, err)
	r := webhook.Replay{TenantID: "acme", Source: webhook.ReplayDeadLetters, Asked: 100}
	_, err = b.CreateReplay(t.Context(), storetest.TestActor(), r)
	require.NoError(t, err)
	_, err = b.CreateReplay(t.Context(), storetest.TestActor(), r)
	require.Equal(t, webhook.CodeQuota, webhook.CodeOf(err), "%v", err)
	_, err = b.Pool().Exec(t.Context(), `update endpoints set auto_replay = true where id = $1`, b.Subscriber.ID)
	require.NoError(t, err)
	auto, begun, err := b.AutoReplay(t.Context(), "acme", b.Subscriber.ID, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.True(t, begun)
	require.Equal(t, webhook.ReplayQueued, auto.State)
}

// While another process lets replays run, the relay does not wait for it.
func TestAdmittingDoesNotWait(t *testing.T) {
	t.Parallel()
	b := limited(t, 1, 1)
	_, err := b.Pool().Exec(t.Context(), `insert into replays (id, tenant_id, source, created_at, asked, rate, ramp, cursor, state)
		values ($1, 'acme', 1, now(), 1, 1, false, '00000000-0000-0000-0000-000000000000', $2)`, webhook.NewReplayID(), int16(webhook.ReplayQueued))
	require.NoError(t, err)
	queued := func() (n int) {
		require.NoError(t, b.Pool().QueryRow(t.Context(), `select count(*) from replays where state = $1`, int16(webhook.ReplayQueued)).Scan(&n))
		return n
	}
	other, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `select everpost_admit_replays(0, 0, 0)`)
	require.NoError(t, err)
	require.NoError(t, b.AdmitReplays(t.Context()))
	require.Equal(t, 1, queued())

	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, b.AdmitReplays(t.Context()))
	require.Zero(t, queued())
}
