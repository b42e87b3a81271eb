package deliveries_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
)

// However many commands of one tenant are due, another's is among the next ones; of each tenant the oldest come first, and of many tenants each has
// its turn.
func TestTenantsTakeTurnsWithTheirCommands(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	command := func(tenant string, n int, age time.Duration) {
		t.Helper()
		b.Exec(t, `
			insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at, workflow_id,
				command, command_id, attempts, commanded_at)
			select gen_random_uuid(), e, $4, $1, 'order.paid', now(), 1, 1, 1, now() + interval '1 day', 'delivery/x',
				1, 1, i, now() - $3::bigint * interval '1 millisecond' - i * interval '1 millisecond'
			from generate_series(1, $2::int) i cross join gen_random_uuid() e`, tenant, n, age.Milliseconds(), b.Subscriber.ID)
	}
	command("large", 2000, time.Hour)
	command("quiet", 1, time.Minute)
	command("young", 1, 0)
	const limit = 200
	taken := func() (n map[string]int) {
		t.Helper()
		n = map[string]int{}
		found, err := b.TakeCommands(t.Context(), limit)
		require.NoError(t, err)
		for _, c := range found {
			n[c.Delivery.TenantID]++
		}
		return n
	}
	require.Equal(t, map[string]int{"large": limit - 1, "quiet": 1}, taken())
	var waiting int
	require.NoError(t, b.Pool().QueryRow(t.Context(), `select max(attempts) from deliveries where tenant_id = 'large' and command_signals = 0`).
		Scan(&waiting))
	require.Equal(t, 2000-(limit-1), waiting, "the oldest are taken first")
	require.Equal(t, map[string]int{"large": limit}, taken())

	b.Exec(t, `delete from deliveries`)
	tenants := limit + 3*deliveries.CommandTurns
	for i := range tenants {
		command(fmt.Sprintf("t%03d", i), 1, time.Hour)
	}
	all := taken()
	require.Len(t, all, limit/deliveries.CommandTurns*deliveries.CommandTurns, "as many as there is room for, one of each tenant")
	maps.Copy(all, taken())
	require.Len(t, all, tenants)
	require.Empty(t, taken())
}
