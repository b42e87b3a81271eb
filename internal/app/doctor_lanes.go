package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/postgres"
)

// laneDialTimeout bounds the connection to one process.
const laneDialTimeout = time.Second

// lanes checks whether processes share the limits of endpoints, and whether those that do are reached from here.
func (c *diagnosis) lanes(ctx context.Context) Finding {
	const docs = ": docs/several-workers.md"
	if c.standalone() {
		return ok("one process, which enforces the limits of endpoints alone")
	}
	if !c.Config.SharesLimits() {
		return warning("EVERPOST_LANE_LISTEN is off: each worker enforces the limits of endpoints for its own requests, so several send a multiple",
			"leave it unset, unless there is only one worker"+docs)
	}
	if may, err := c.store.May(ctx, postgres.RoleWorker); err != nil || !may {
		return skipped("the login may not read which processes share limits; run it with the settings of a worker")
	}
	owners, err := c.store.Lanes.Owners(ctx)
	if err != nil {
		return problem(oneLine(err), "see the finding on the database")
	}
	var unreached []string
	for i := range owners {
		if owners[i].IsLocal() && owners[i].Machine != "" && owners[i].Machine != machine() {
			unreached = append(unreached, owners[i].Address+" is on another machine, or in another network")
			continue
		}
		if err := dials(ctx, owners[i].Address); err != nil {
			unreached = append(unreached, oneLine(err))
		}
	}
	if len(unreached) > 0 {
		return problem("processes that share the limits of endpoints are not reached from here: "+strings.Join(unreached, "; "),
			"let all processes reach each other's EVERPOST_LANE_LISTEN, or set EVERPOST_LANE_ADDRESS"+docs)
	}
	return ok("%d processes share the limits of endpoints", len(owners))
}

func dials(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: laneDialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, cause(err))
	}
	return conn.Close() //nolint:wrapcheck // nothing was written
}
