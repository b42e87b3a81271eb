package record_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/everpost/everpost/internal/receivertest"
)

// stayBranches are those whose requests take so long that the shared workflow checks them twice.
func stayBranches() []branch {
	const long = 8 * time.Second
	fails := receivertest.Step{Status: http.StatusServiceUnavailable, Delay: long}
	delivers := receivertest.Step{Delay: long}
	return []branch{
		sharing("stays", func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "4s", script(fails, fine), script(delivers), script(fine))
			l.all(t, "delivered")
			return l
		}),
		// The cancel is carried out when the outcome of the request is known.
		sharing("stays-cancelled", func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "1s", script(fails), script(delivers))
			i.awaitTimer(t, l.id)
			l.of(0).do(t, "cancel")
			l.of(0).awaits(t, "cancelled")
			l.of(1).awaits(t, "delivered")
			l.awaitEnd(t)
			return l
		}),
		sharing("stays-deleted", func(t *testing.T, i *installation) lot {
			t.Helper()
			l := i.share(t, "1s", script(fails))
			i.awaitTimer(t, l.id)
			i.call(t, http.MethodDelete, "/endpoints/"+l.of(0).endpoint, nil)
			l.all(t, "cancelled")
			return l
		}),
	}
}
