package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The Temporal Web UI shows every tenant's workflows, so its addresses are in responses to operators
// only, unless a setting extends them to tenants.
func TestWorkflowURLsAreTheOperators(t *testing.T) {
	t.Parallel()
	for _, shown := range []bool{false, true} {
		b := setup(t, func(c *Config) { c.WorkflowURLForTenants = shown })
		_, delivery := b.posted(t)
		replay := b.ok(t, http.StatusAccepted, "operator", "POST", replaysPath, `{"source":"dead_letters"}`).json["id"].(string)
		for _, c := range []struct{ method, path, body string }{
			{"GET", deliveriesPath, ""},
			{"GET", deliveriesPath + "/" + delivery, ""},
			{"POST", deliveriesPath + "/" + delivery + "/cancel", ""},
			{"GET", replaysPath, ""},
			{"GET", replaysPath + "/" + replay, ""},
			{"POST", replaysPath, `{"source":"dead_letters"}`},
			{"PATCH", replaysPath + "/" + replay, `{"rate_per_minute":10}`},
			{"POST", replaysPath + "/" + replay + "/pause", ""},
		} {
			for as, sees := range map[string]bool{"operator": true, "admin": shown, "ingest": shown} {
				if as == "ingest" && c.method != "GET" {
					continue
				}
				a := b.do(t, as, c.method, c.path, c.body)
				require.Less(t, a.StatusCode, 300, "%s %s: %s", c.method, c.path, a.text)
				require.Contains(t, a.text, `"workflow_id":"`, c.path)
				require.Equal(t, sees, strings.Contains(a.text, "http://ui.example/"), "%s %s as %s: %s", c.method, c.path, as, a.text)
				require.Equal(t, !sees, strings.Contains(a.text, `"workflow_url":null`), "%s %s as %s", c.method, c.path, as)
			}
		}
	}
}

// The address of a closed workflow is shown for a while, and then no longer. The workflow of a dead
// letter is open.
func TestWorkflowURLsEnd(t *testing.T) {
	t.Parallel()
	h := setup(t, func(c *Config) { c.WorkflowsKept = func() time.Duration { return 7 * 24 * time.Hour } }).server.handlers
	c := call{key: webhook.Key{Scope: webhook.ScopeOperator}}
	now := testNow()
	for name, of := range map[string]struct {
		state webhook.State
		ended time.Time
		shown bool
	}{
		"open":                  {webhook.StateRetrying, time.Time{}, true},
		"delivered just now":    {webhook.StateDelivered, now, true},
		"delivered a week ago":  {webhook.StateDelivered, now.Add(-7 * 24 * time.Hour), false},
		"given up a month ago":  {webhook.StateDeadLettered, now.Add(-30 * 24 * time.Hour), true},
		"discarded a month ago": {webhook.StateDiscarded, now.Add(-30 * 24 * time.Hour), false},
	} {
		d := webhook.Delivery{WorkflowID: "delivery/x"}
		d.State, d.CompletedAt = of.state, of.ended
		require.Equal(t, of.shown, h.deliveries.views.show(c, d, "").WorkflowURL != nil, name)
	}
	require.Nil(t, h.replays.show(c, webhook.Replay{CompletedAt: now.Add(-8 * 24 * time.Hour)}).WorkflowURL)
	require.NotNil(t, h.replays.show(c, webhook.Replay{}).WorkflowURL)
}
