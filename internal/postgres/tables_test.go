package postgres

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which file writes which table: so few that a reader finds them all. See the package's comment.
func TestFewFilesWriteATable(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	tables := query[string](t, s, `
		select relname::text from pg_class
		where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and not relispartition and relname <> 'everpost_schema_version'`)
	write := regexp.MustCompile(`\b(?i:insert into|update|delete from) ([a-z_]+)\b`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	written := map[string][]string{}
	for _, table := range tables {
		written[table] = nil
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range write.FindAllStringSubmatch(string(text), -1) {
			if table := match[1]; slices.Contains(tables, table) && !slices.Contains(written[table], file) {
				written[table] = append(written[table], file)
			}
		}
	}
	require.Equal(t, map[string][]string{
		"tenants":          {"endpoints.go", "tenants.go"}, // the version of its endpoints
		"deleted_tenants":  {"tenant_deleted.go", "tenants.go"},
		"api_keys":         {"key_use.go", "keys.go"},
		"audit_log":        {"audit.go"},
		"endpoints":        {"endpoint_columns.go", "endpoint_rotate.go", "endpoints.go"},
		"endpoint_secrets": {"endpoint_rotate.go", "endpoint_secrets.go", "endpoints.go"},
		"endpoint_health":  {"endpoint_health.go"},
		"endpoint_trouble": {"endpoint_failures.go"},
		"circuit_closings": {"endpoint_circuit.go"},
		"events":           {"event_write.go", "retention.go"},
		"idempotency_keys": {"event_keys.go"},
		"outbox":           {"delivery_record.go", "outbox.go"},
		"deliveries": {
			"delivery_cancel_deleted.go", "delivery_claims.go", "delivery_commands.go", "delivery_overdue.go", "delivery_record.go",
			"outbox_commands.go", "replay_runs.go", "retention.go",
		},
		"attempts":        {"delivery_attempts.go", "retention.go"},
		"replays":         {"replay_batch.go", "replay_outcomes.go", "replay_step.go", "replays.go"},
		"replay_releases": {"replay_batch.go", "replay_outcomes.go", "replay_step.go"},
	}, written)
}
