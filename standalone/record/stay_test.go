package record_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/everpost/everpost/internal/receivertest"
)

// stayBranches are those whose requests take so long that the shared workflow checks them twice.
func stayBranches() []branch {
	const long = 8 * time.Second
	fails := receivertest.Step{Status: http.StatusServiceUnavailable, Delay: long}
	delivers := receivertest.Step{Delay: long}
	return slices.Concat(
		sharing("stays", -1, func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "4s", script(fails, fine), script(delivers), script(fine))
			l.all(t, "delivered")
			return l
		}),
		// It leaves for a workflow of its own, which waits for the request.
		sharing("stays-cancelled", 0, func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "1s", script(fails), script(delivers))
			i.awaitTimer(t, l.id)
			l.of(0).do(t, "cancel")
			l.of(0).awaits(t, "cancelled")
			l.of(1).awaits(t, "delivered")
			l.awaitEnd(t)
			return l
		}),
		// It is checked at once, and leaves with the outcome of the request.
		sharing("stays-deleted", 0, func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "1s", script(fails))
			i.awaitTimer(t, l.id)
			i.call(t, http.MethodDelete, "/endpoints/"+l.of(0).endpoint, nil)
			l.all(t, "cancelled")
			return l
		}),
	)
}
