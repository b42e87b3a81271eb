package e2e_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// metricName is a metric in an expression of PromQL, or in the text that Prometheus scrapes.
var metricName = regexp.MustCompile(`\b(?:everpost|temporal|process|go)_[a-z0-9_]+`)

// An installation exports all metrics that its rules, its dashboard and its documentation name, and
// the documentation names all that it exports.
func TestMetricsOfRulesAndDashboard(t *testing.T) {
	t.Parallel()
	needsStandalone(t, itsOwn)
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"event_types": []string{"counted"}})
	r.Script("/hook", receivertest.Step{Status: 503})
	_, d := b.postOne("counted", `{}`)
	b.waitState(d.ID, "delivered")
	ctx := contextFor(t, patience)
	b.awaitWorkflow(ctx, b.in.temporal(t), b.delivery(d.ID).WorkflowID)

	admin := &apiClient{base: b.in.addr["admin"], http: http.DefaultClient}
	exported := func() map[string]bool {
		answer, err := admin.call(ctx, http.MethodGet, "/metrics", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.status)
		names := map[string]bool{}
		for line := range strings.Lines(string(answer.body)) {
			if !strings.HasPrefix(line, "#") {
				names[metricName.FindString(line)] = true
			}
		}
		return names
	}
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../deploy/monitoring/" + file)
		require.NoError(t, err)
		named := metricName.FindAllString(string(text), -1)
		require.Greater(t, len(named), 20)
		for _, name := range named {
			eventually(ctx, t, func() string {
				if exported()[name] {
					return ""
				}
				return file + " names a metric that is not exported: " + name
			})
		}
	}
	page, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("`(everpost_[a-z0-9_]+)[`{]").FindAllStringSubmatch(string(page), -1) {
		documented[match[1]] = true
	}
	now := exported()
	for name := range now {
		if base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count"); strings.HasPrefix(name, "everpost_") {
			require.True(t, documented[name] || documented[base], "docs/monitoring.md does not name %s", name)
		}
	}
	for name := range documented {
		require.True(t, now[name] || now[name+"_count"], "docs/monitoring.md names %s, which is not exported", name)
	}
}
