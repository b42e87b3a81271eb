package pgpipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// statements are Temporal's, as they reach the driver, and some that must not be taken for one of them.
var statements = []struct {
	name  string
	query string
	want  shape
}{
	{
		"one row",
		"INSERT INTO\n shards (shard_id, range_id, data, data_encoding) VALUES ($1, $2, $3, $4)",
		shape{kind: insert, rows: 1, selection: selection{table: "shards"}},
	},
	{"no space", "INSERT INTO executions(shard_id, data)\n VALUES($1, $2)", shape{kind: insert, rows: 1, selection: selection{table: "executions"}}},
	{
		"three rows",
		"INSERT INTO transfer_tasks(shard_id, task_id, data, data_encoding) \n VALUES($1, $2, $3, $4),($5, $6, $7, $8),($9, $10, $11, $12)",
		shape{kind: insert, rows: 3, selection: selection{table: "transfer_tasks"}},
	},
	{
		"rows that may be there", "INSERT INTO history_tree (shard_id, tree_id, branch_id, data, data_encoding) VALUES ($1, $2, $3, $4, $5) " +
			"ON CONFLICT (shard_id, tree_id, branch_id) DO UPDATE SET data = excluded.data, data_encoding = excluded.data_encoding",
		shape{kind: insert, rows: 1, selection: selection{table: "history_tree"}},
	},
	{
		"events", "INSERT INTO history_node (shard_id, tree_id, node_id, data, data_encoding) VALUES ($1, $2, $3, $4, $5) " +
			"ON CONFLICT (shard_id, tree_id, node_id) DO UPDATE SET data=$6, data_encoding=$7 ",
		shape{kind: insert, rows: 1, selection: selection{table: "history_node"}},
	},
	{
		"assignments of rows", "INSERT INTO timer_info_maps\n(shard_id, timer_id, data)\nVALUES\n($1, $2, $3)\nON CONFLICT (shard_id, timer_id) DO UPDATE\n" +
			"\tSET (shard_id, timer_id, data)\n  \t  = (excluded.shard_id, excluded.timer_id, excluded.data)",
		shape{},
	},
	{
		"only what is not there",
		"INSERT INTO signals_requested_sets\n(shard_id, signal_id) VALUES\n($1, $2)\nON CONFLICT (shard_id, signal_id) DO NOTHING",
		shape{},
	},
	{"only where a condition holds", "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = $1 WHERE t.b = $2", shape{}},
	{"an answer", "INSERT INTO t (a) VALUES ($1) RETURNING a", shape{}},
	{"of a query", "INSERT INTO t (a) SELECT a FROM u WHERE b = $1", shape{}},
	{"a function's value", "INSERT INTO t (a) VALUES (now())", shape{}},
	{"a text", "INSERT INTO t (a) VALUES ('($1)')", shape{}},
	{"quoted names", `INSERT INTO "t" (a) VALUES ($1)`, shape{}},

	{
		"rows of one table", "UPDATE executions SET\n db_record_version = $1, data = $2\n WHERE shard_id = $3 AND namespace_id = $4",
		shape{kind: update, selection: selection{table: "executions", where: map[string]int{"shard_id": 2, "namespace_id": 3}}},
	},
	{"its own key", "UPDATE t SET a = $1 WHERE a = $2", shape{}},
	{"its own key, among others", "UPDATE t SET b = $1, a=$2 WHERE c = $3 AND a = $4", shape{}},
	{"namespaces' version", "UPDATE namespace_metadata SET notification_version = $1 WHERE notification_version = $2 AND partition_id=$3", shape{}},
	{"a calculated value", "UPDATE t SET a = a + $1 WHERE b = $2", shape{}},
	{"a range", "UPDATE t SET a = $1 WHERE b > $2", shape{}},
	{"either", "UPDATE t SET a = $1 WHERE b = $2 OR c = $3", shape{}},
	{"everything", "UPDATE t SET a = $1", shape{}},
	{"a column twice", "UPDATE t SET a = $1 WHERE b = $2 AND b = $3", shape{}},
	{"no such argument", "UPDATE t SET a = $1 WHERE b = $0", shape{}},
	{"an argument out of all bounds", "UPDATE t SET a = $1 WHERE b = $99999999999999999999", shape{}},
	{"with an answer", "UPDATE t SET a = $1 WHERE b = $2 RETURNING a", shape{}},
	{"of another table's rows", "UPDATE t SET a = $1 FROM u WHERE b = $2", shape{}},

	{
		"a lock", "SELECT range_id FROM shards WHERE shard_id = $1 FOR UPDATE",
		shape{kind: lock, selection: selection{table: "shards", where: map[string]int{"shard_id": 0}}},
	},
	{
		"a lock by more", "SELECT db_record_version, next_event_id FROM executions \n WHERE shard_id = $1 AND namespace_id = $2 FOR UPDATE",
		shape{kind: lock, selection: selection{table: "executions", where: map[string]int{"shard_id": 0, "namespace_id": 1}}},
	},
	{"a lock of what is free", "SELECT a FROM t WHERE b = $1 FOR UPDATE SKIP LOCKED", shape{kind: read}},
	{"a lock of some", "SELECT a FROM t WHERE b = $1 LIMIT 1 FOR UPDATE", shape{kind: read}},
	{"a shared lock", "SELECT range_id FROM shards WHERE shard_id = $1 FOR SHARE", shape{kind: read}},
	{
		"a lock of two tables", "SELECT\nce.shard_id, e.last_write_version\nFROM current_executions ce\nINNER JOIN executions e ON e.shard_id = ce.shard_id\n" +
			"WHERE ce.shard_id = $1 FOR UPDATE",
		shape{kind: read},
	},
	{"a read", "SELECT task_id, data FROM transfer_tasks WHERE shard_id = $1 AND task_id >= $2 ORDER BY task_id LIMIT $3", shape{kind: read}},
	{"a function", "SELECT nextval($1)", shape{}},
	{"a new table", "SELECT a INTO t FROM u", shape{}},
	{"a new table, written small", "SELECT a into t FROM u", shape{}},

	{"a removal", "DELETE FROM buffered_events WHERE shard_id = $1", shape{}},
	{"a removal first", "WITH gone AS (DELETE FROM t RETURNING a) SELECT a FROM gone", shape{}},
	{"nothing", "", shape{}},
}

func TestParse(t *testing.T) {
	t.Parallel()
	all := &shapes{byText: map[string]shape{}}
	for _, s := range statements {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, s.want, parse(s.query))
			require.Equal(t, s.want, all.of(s.query))
			require.Equal(t, s.want, all.of(s.query), "kept")
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range statements {
		f.Add(s.query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		s := parse(query)
		require.Equal(t, s.kind == insert, s.rows > 0, "rows are known of inserts only")
		require.Equal(t, s.kind == update || s.kind == lock, len(s.where) > 0, "so are conditions of updates and locks")
		for column, place := range s.where {
			require.NotEmpty(t, column)
			require.GreaterOrEqual(t, place, 0)
		}
	})
}

func TestSame(t *testing.T) {
	t.Parallel()
	of := func(table string, where map[string]int) selection { return selection{table: table, where: where} }
	a := of("t", map[string]int{"a": 0, "b": 1})
	tests := []struct {
		name           string
		one            selection
		other          selection
		args, thanArgs []any
		want           bool
	}{
		{"the same", a, a, []any{1, "x"}, []any{1, "x"}, true},
		{"bytes", a, a, []any{1, []byte("x")}, []any{1, []byte("x")}, true},
		{"in another order", a, of("t", map[string]int{"a": 1, "b": 0}), []any{1, "x"}, []any{"x", 1}, true},
		{"another value", a, a, []any{1, "x"}, []any{1, "y"}, false},
		{"another type", a, a, []any{1, "x"}, []any{int64(1), "x"}, false},
		{"another table", a, of("u", a.where), []any{1, "x"}, []any{1, "x"}, false},
		{"fewer columns", a, of("t", map[string]int{"a": 0}), []any{1, "x"}, []any{1}, false},
		{"another column", a, of("t", map[string]int{"a": 0, "c": 1}), []any{1, "x"}, []any{1, "x"}, false},
		{"an argument is missing", a, a, []any{1}, []any{1, "x"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.one.same(test.args, test.other, test.thanArgs))
		})
	}
}
