package cli

import (
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
				e.TenantID, e.EndpointID, e.Condition, strconv.Itoa(e.Waiting), strconv.Itoa(e.Held), strconv.Itoa(e.GivenUp), printable.Text(text(e.Cause)),
			})
		}
		if err := printable.Table(s.Stdout, rows); err != nil {
			return err
		}
		rows = [][]string{{}, {"TENANT", "ILL ENDPOINTS", "DEAD LETTERS, 1H", "DEAD LETTERS", "WAITING"}}
		for _, t := range shown.Tenants {
			rows = append(rows, []string{t.TenantID, strconv.Itoa(t.Endpoints), strconv.Itoa(t.DeadLettersLastHour), upTo(t.DeadLetters), upTo(t.Waiting)})
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

// maxAttention is the number up to which the API counts what needs attention.
const maxAttention = 1000

// upTo is a count that goes no further than maxAttention.
func upTo(n int) string {
	if n < maxAttention {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(maxAttention) + "+"
}
