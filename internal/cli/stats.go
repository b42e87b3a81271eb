package cli

import (
	"context"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// StatsCommand shows statistics of a tenant, or of all tenants with an operator's key.
type StatsCommand struct {
	remote `embed:""`

	Endpoint webhook.EndpointID `help:"Only this endpoint." placeholder:"ID"`
	Since    instant            `help:"Since when: a time, or a duration ago; 1h without it." placeholder:"WHEN"`
	Until    instant            `help:"Until when; now without it." placeholder:"WHEN"`
	Step     string             `help:"The span of a line: 1m (of the last 48 hours) or 1h; by the time shown without it." placeholder:"SPAN"`
}

// Run prints a line for each minute or hour in which anything was counted, and the totals.
func (c *StatsCommand) Run(ctx context.Context, p Process) error {
	s, err := c.connection.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	now, endpoint := time.Now(), ""
	if !c.Endpoint.IsZero() {
		if endpoint = c.Endpoint.String(); c.Tenant == "" {
			return usage("--tenant: is required with --endpoint")
		}
	}
	s.tenant = c.Tenant
	query := queryOf(map[string]string{"endpoint_id": endpoint, "since": c.Since.ago(now), "until": c.Until.ago(now), "step": c.Step})
	a, err := s.do(ctx, request{method: http.MethodGet, path: []string{"stats"}, ofAll: c.Tenant == "", query: query})
	if err != nil {
		return err
	}
	if s.json {
		return s.show(a)
	}
	rows, err := statsTable(a)
	if err != nil {
		return err
	}
	return printable.Table(s.Stdout, rows)
}
