package cli

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// AttentionCommand shows what needs attention over all tenants. It needs an operator key.
type AttentionCommand struct {
	connection `embed:""`
}

// Run prints the endpoints that need attention, the worst first, and then the tenants.
func (c *AttentionCommand) Run(ctx context.Context, p Process) error {
	r := request{method: http.MethodGet, path: []string{"attention"}, ofAll: true}
	return readable(ctx, p, c, r, func(s *session, _ []byte, shown client.Attention) error {
		if len(shown.Endpoints)+len(shown.Tenants) == 0 {
			return s.line("nothing needs attention")
		}
		rows := [][]string{{"TENANT", "ENDPOINT", "CONDITION", "WAITING", "HELD", "GIVEN UP", "CAUSE"}}
		for _, e := range shown.Endpoints {
			rows = append(rows, []string{
				e.TenantID, e.EndpointID, e.Condition, undelivered(e.Waiting), undelivered(e.Held), undelivered(e.GivenUp),
				printable.Text(*cmp.Or(e.Cause, &e.Summary)),
			})
		}
		if err := printable.Table(s.Stdout, rows); err != nil {
			return err
		}
		rows = [][]string{{}, {"TENANT", "ILL ENDPOINTS", "DEAD LETTERS, 1H", "DEAD LETTERS", "OPEN"}}
		for _, t := range shown.Tenants {
			rows = append(rows, []string{
				t.TenantID, strconv.Itoa(t.Endpoints), upTo(t.DeadLettersLastHour, maxAttention), upTo(t.DeadLetters, maxAttention),
				upTo(t.Waiting, maxAttention),
			})
		}
		if err := printable.Table(s.Stdout, rows); err != nil {
			return err
		}
		if shown.More {
			return s.line("there is more than is shown")
		}
		return nil
	})
}

// The numbers up to which the API counts what needs attention: at a tenant, and what has not arrived at an endpoint.
const (
	maxAttention   = 1000
	maxUndelivered = 100
)

// upTo is a count that goes no further than most.
func upTo(n, most int) string {
	if n < most {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(most) + "+"
}

// undelivered is a count of what has not arrived at an endpoint; a dash if it could not be read.
func undelivered(n *int) string {
	if n == nil {
		return "-"
	}
	return upTo(*n, maxUndelivered)
}
