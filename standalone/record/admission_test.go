package record_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// admissionBranches are those of deliveries that cannot go at once.
func admissionBranches() []branch {
	// An endpoint that takes one request in two seconds.
	seldom := func(t *testing.T, i *installation, giveUpAfter string) string {
		t.Helper()
		id := text(t, i.newEndpoint(t, "1s", giveUpAfter, fine, fine, fine)["id"])
		i.call(t, http.MethodPatch, "/endpoints/"+id, map[string]any{"rate_limit_per_second": 0.5})
		return id
	}
	return []branch{
		{"deferred", func(t *testing.T, i *installation) delivery {
			t.Helper()
			endpoint := seldom(t, i, "72h")
			i.postTo(t, endpoint, time.Time{}).awaits(t, "delivered")
			d := i.postTo(t, endpoint, time.Time{})
			d.awaits(t, "delivered")
			return d
		}},
		{"deferred-expired", func(t *testing.T, i *installation) delivery {
			t.Helper()
			endpoint := seldom(t, i, "1s")
			i.postTo(t, endpoint, time.Time{}).awaits(t, "delivered")
			d := i.postTo(t, endpoint, time.Time{})
			d.awaits(t, "dead_lettered")
			return d
		}},
		{"shared-deferred", func(t *testing.T, i *installation) delivery {
			t.Helper()
			l := i.shareTo(t, seldom(t, i, "72h"), script(fine), script(fine), script(fine))
			l.all(t, "delivered")
			return l.shared()
		}},
		{"shared-held", func(t *testing.T, i *installation) delivery {
			t.Helper()
			l := i.holdShared(t)
			return l.shared()
		}},
		{"shared-released", func(t *testing.T, i *installation) delivery {
			t.Helper()
			l := i.holdShared(t)
			l.of(0).resume(t)
			for n := range l.starts {
				l.starts[n].Resume = &webhook.Progress{
					Run: 1, Seq: 1, State: webhook.StateHeld, Reason: webhook.ReasonPaused, GiveUpAt: l.starts[n].GiveUpAt,
				}
			}
			l = l.begin(t)
			l.all(t, "delivered")
			return l.shared()
		}},
	}
}

// holdShared lets a shared workflow find that its deliveries' endpoint is paused.
func (i *installation) holdShared(t *testing.T) lot {
	t.Helper()
	endpoint := text(t, i.newEndpoint(t, "1s", "72h", fine, fine)["id"])
	delivery{installation: i, endpoint: endpoint}.pause(t)
	l := i.shareTo(t, endpoint, script(fine), script(fine))
	l.all(t, "held")
	require.NoError(t, i.temporal.GetWorkflow(t.Context(), l.id, "").Get(t.Context(), nil), "it has ended")
	return l
}
