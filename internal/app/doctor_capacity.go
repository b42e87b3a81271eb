package app

import (
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/postgres"
)

const (
	// listsAtOnce is how many lists over all days a process may read at a time.
	listsAtOnce = 12
	// daysAhead are those for which there are partitions besides those of the retention.
	daysAhead = 4
)

// capacity checks what PostgreSQL has room for: connections, and locks of statements over all partitions.
func (c *diagnosis) capacity(context.Context) Finding {
	return capacityFinding(c.facts, c.Config.DBConnections, max(c.Config.Retention, c.Config.DeadLetterRetention))
}

// capacityFinding compares PostgreSQL's room with the connections of each process and the retention of the installation.
func capacityFinding(f postgres.Facts, connections int, retention time.Duration) Finding {
	const day = 24 * time.Hour
	processes := max(1, f.Processes)
	if needed := processes * connections; needed > f.Connections {
		return warning(fmt.Sprintf("%d processes may open %d connections each, and PostgreSQL allows %d", processes, connections, f.Connections),
			fmt.Sprintf("set EVERPOST_DB_CONNECTIONS to %d or less, or raise max_connections: docs/operations.md#connections-to-postgresql",
				f.Connections/processes))
	}
	days := int64((retention+day-1)/day) + daysAhead
	needed := listsAtOnce * days * f.LocksPerDay
	if needed > f.Locks {
		per := f.Locks / max(1, f.LocksPerTransaction)
		return warning(fmt.Sprintf("PostgreSQL has room for %d locks; %d lists at once over %d days need %d", f.Locks, listsAtOnce, days, needed),
			fmt.Sprintf("set max_locks_per_transaction to %d and restart PostgreSQL: docs/sizing.md#locks", (needed+per-1)/per))
	}
	return ok("%d connections allowed, %d processes with up to %d each; room for %d locks, %d needed", f.Connections, processes, connections, f.Locks, needed)
}
