package stores_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
)

// Which package writes which table, as the package's comment says.
func TestFewPackagesWriteATable(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	tables := storetest.Query[string](t, s, `
		select relname::text from pg_class
		where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and not relispartition and relname <> 'everpost_schema_version'`)
	write := regexp.MustCompile(`\b(?i:insert into|update|delete from) ([a-z_]+)\b`)
	files, err := filepath.Glob(filepath.Join("..", "*", "*.go"))
	require.NoError(t, err)
	written := map[string][]string{}
	for _, table := range tables {
		written[table] = nil
	}
	for _, file := range files {
		of := filepath.Base(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") || of == "storetest" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range write.FindAllStringSubmatch(string(text), -1) {
			if table := match[1]; slices.Contains(tables, table) && !slices.Contains(written[table], of) {
				written[table] = append(written[table], of)
			}
		}
	}
	require.Equal(t, map[string][]string{
		"tenants":          {"endpoints", "tenants"}, // the version of its endpoints
		"lanes":            {"lanes"},
		"processes":        {"lanes"},
		"deleted_tenants":  {"tenants"},
		"api_keys":         {"keys"},
		"audit_log":        {"audit"},
		"endpoints":        {"endpoints"},
		"endpoint_secrets": {"endpoints"},
		"endpoint_health":  {"health"},
		"endpoint_trouble": {"health"},
		"circuit_closings": {"health"},
		"events":           {"events", "retention"},
		"idempotency_keys": {"events", "retention"},
		"lines":            {"events"},
		"request_keys":     {"requests"},
		"outbox":           {"deliveries"},
		"deliveries":       {"deliveries", "replays", "retention"},
		"attempts":         {"deliveries", "retention"},
		"releases":         {"deliveries"},
		"replays":          {"replays"},
		"replay_releases":  {"replays"},
		"console_links":    {"sessions"},
		"console_sessions": {"sessions"},

		"notification_settings":      {"notifications"},
		"notification_channels":      {"notifications"},
		"notification_changes":       {"notifications"},
		"notification_told":          {"notifications"},
		"notification_mails":         {"notifications"},
		"notification_confirmations": {"notifications"},
		"notification_keys":          {"notifications"},

		"event_types":         {"eventtypes"},
		"event_type_versions": {"eventtypes"},

		"statistics_minutes": {"statistics"},
		"statistics_hours":   {"statistics"},
		"statistics_writers": {"statistics"},
	}, written)
}
