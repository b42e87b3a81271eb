package stores_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// prepared is a statement that a connection keeps the plan of.
type prepared struct {
	name, text string
	parameters int
}

// The plans that group commits keep are made while the tables are nearly empty, where reading a
// whole one looks cheap; each has to be one for a full table.
func TestGroupCommitsReadNoWholeTable(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	event := storetest.NewEvent("order.paid")
	event.ExternalID = "order-1"
	accepted, err := b.Accept(t.Context(), event)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), event) // repeated: what was stored is read
	require.NoError(t, err)
	start := accepted.Deliveries[0]
	_, err = b.Claim(t.Context(), webhook.Claim{Ref: start.Ref, Progress: webhook.Progress{Run: 1, GiveUpAt: start.GiveUpAt}, Claimant: "me", For: 1})
	require.NoError(t, err)
	delivered := webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDelivered, GiveUpAt: start.GiveUpAt}
	_, err = b.RecordStep(t.Context(), webhook.Step{Ref: start.Ref, Progress: delivered, Attempt: &webhook.Attempt{Run: 1, Number: 1}})
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, pool := range []*pgxpool.Pool{b.EventsPool, b.StepPool} {
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			t.Cleanup(conn.Release)
			for _, p := range preparedOn(t, conn) {
				words := strings.Fields(p.text)
				if len(words) == 1 { // begin, commit
					continue
				}
				seen[strings.Join(words[:min(3, len(words))], " ")] = true
				requireByIndex(t, conn, p)
			}
		}
	}
	require.Subset(t, keysOfSet(seen), []string{"insert into events", "insert into outbox", "with applied as", "insert into attempts"})
}

func keysOfSet(set map[string]bool) (all []string) {
	for name := range set {
		all = append(all, name)
	}
	return all
}

// preparedOn are the store's statements that a connection has prepared.
func preparedOn(t *testing.T, conn *pgxpool.Conn) []prepared {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select name, statement, cardinality(parameter_types) from pg_prepared_statements where statement not like '%pg\_%'`, pgx.QueryExecModeExec)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p prepared, err error) {
		return p, row.Scan(&p.name, &p.text, &p.parameters)
	})
	require.NoError(t, err)
	return all
}

func requireByIndex(t *testing.T, conn *pgxpool.Conn, p prepared) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "set plan_cache_mode = force_generic_plan", pgx.QueryExecModeExec)
	require.NoError(t, err)
	arguments := ""
	if p.parameters > 0 {
		arguments = "(null" + strings.Repeat(", null", p.parameters-1) + ")"
	}
	rows, err := conn.Query(t.Context(), fmt.Sprintf(`explain (costs off) execute %q%s`, p.name, arguments), pgx.QueryExecModeExec)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for i, line := range plan {
		require.NotContains(t, line, "Seq Scan", "%s\n%s", p.text, strings.Join(plan, "\n"))
		if strings.Contains(line, "Index Scan") || strings.Contains(line, "Index Only Scan") {
			require.Greater(t, len(plan), i+1, p.text)
			require.Contains(t, plan[i+1], "Index Cond", "%s\n%s", p.text, strings.Join(plan, "\n"))
		}
	}
}
