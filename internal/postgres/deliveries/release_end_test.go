package deliveries_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/webhook"
)

// A set of exactly one page does not end before it is released, however late its first turn comes.
func TestASetOfAPageIsReleased(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.pausedWith(t, 1)
	b.holdMany(t, deliveries.CountPage-1)
	b.resume(t, 0)
	b.Exec(t, `update releases set until_id = 'ffffffff-0000-0000-0000-000000000000', counted_to = 'ffffffff-0000-0000-0000-000000000000'`)
	b.settled(t)
	b.turn(t, 100)
	require.NotEqual(t, webhook.ReleaseDone, b.release(t).State)
}

// What the relay has had to start again is no crowd: starts that hang hold up no other releases.
func TestHungStartsLeaveRoom(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.pausedWith(t, 1)
	b.holdMany(t, 150)
	b.resume(t, webhook.MaxReleaseRate)
	b.Exec(t, `update releases set rate = null, running_at = now() - interval '1 hour'`)
	require.Len(t, b.turn(t, 100), 100)
	b.Exec(t, `update outbox set relayed = 3, relay_at = now() + interval '60 seconds'`) // their history shard is lost
	room, err := b.StartRoom(t.Context(), []int{webhook.LaneOf(b.Subscriber.ID)})
	require.NoError(t, err)
	require.Positive(t, room)
}

// A hold of a set finds its row by its id, also by a plan that was made while the day was empty.
func TestPlanOfHolds(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	conn, err := b.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{`set plan_cache_mode = force_generic_plan`, `prepare p (uuid[], uuid[], bool[]) as ` + deliveries.NoteHolds} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	rows, err := conn.Query(t.Context(), `explain execute p (array[gen_random_uuid()], array[gen_random_uuid()], array[false])`)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan, "\n"), "Join Filter: (u.id = d.id)")
}
