package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/postgres"
)

func TestCapacity(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	standalone := postgres.Facts{Connections: 197, Processes: 1, LocksPerTransaction: 640, Locks: 640 * 200, LocksPerDay: 24}
	byDefault := postgres.Facts{Connections: 97, Processes: 2, LocksPerTransaction: 64, Locks: 64 * 100, LocksPerDay: 21}
	for name, c := range map[string]struct {
		facts       postgres.Facts
		connections int
		retention   time.Duration
		verdict     console.Verdict
		says        []string
	}{
		"standalone, a year": {standalone, 37, 365 * day, console.VerdictOK, []string{"room for 128000 locks, 106272 needed"}},
		"PostgreSQL's defaults": {
			byDefault, 37, 20 * day, console.VerdictOK,
			[]string{"97 connections allowed, 2 processes with up to 37 each"},
		},
		"a month on its defaults": {
			byDefault, 37, 30 * day, console.VerdictWarning,
			[]string{"room for 6400 locks", "over 34 days need 8568", "max_locks_per_transaction to 86"},
		},
		"more connections than it has": {
			byDefault, 60, day, console.VerdictWarning,
			[]string{"2 processes may open 60", "allows 97", "EVERPOST_DB_CONNECTIONS to 48"},
		},
		"nobody runs": {
			postgres.Facts{Connections: 20, Locks: 6400, LocksPerTransaction: 64}, 37, day, console.VerdictWarning,
			[]string{"1 processes may open 37"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := capacityFinding(c.facts, c.connections, c.retention)
			require.Equal(t, c.verdict, f.Verdict, f.Detail)
			for _, said := range c.says {
				require.Contains(t, f.Detail+" "+f.Remedy, said)
			}
		})
	}
}

func TestPoolsStayWithinTheConnections(t *testing.T) {
	t.Parallel()
	for all := 16; all <= 1000; all++ {
		main := int(storeConns(all))
		require.GreaterOrEqual(t, main, 4)
		require.LessOrEqual(t, main+max(2, main/2)+9, all)
	}
	require.EqualValues(t, 18, storeConns(37))
}
