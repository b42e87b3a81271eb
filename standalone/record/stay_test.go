package record_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/everpost/everpost/internal/receivertest"
)

// stayBranches are those of a lot whose requests go on for so long that it asks for them
// twice. They come last: what workflows there are to spare, they use up.
func stayBranches() []branch {
	const long = 8 * time.Second
	fails := receivertest.Step{Status: http.StatusServiceUnavailable, Delay: long}
	delivers := receivertest.Step{Delay: long}
	return slices.Concat(
		sharing("stays", -1, func(t *testing.T, i *installation) lot {
			t.Helper()
			i.spend(t)
			l := i.share(t, "4s", script(fails, fine), script(delivers), script(fine))
			l.all(t, "delivered")
			return l
		}),
		// It leaves for a workflow of its own, which waits for the request.
		sharing("stays-cancelled", 0, func(t *testing.T, i *installation) lot {
			t.Helper()
			i.spend(t)
			l := i.share(t, "1s", script(fails), script(delivers))
			i.awaitTimer(t, l.id)
			l.of(0).do(t, "cancel")
			l.of(0).awaits(t, "cancelled")
			l.of(1).awaits(t, "delivered")
			l.awaitEnd(t)
			return l
		}),
		// It is asked for at once, and leaves with what the request came to.
		sharing("stays-deleted", 0, func(t *testing.T, i *installation) lot {
			t.Helper()
			i.spend(t)
			l := i.share(t, "1s", script(fails))
			i.awaitTimer(t, l.id)
			i.call(t, http.MethodDelete, "/endpoints/"+l.of(0).endpoint, nil)
			l.all(t, "cancelled")
			return l
		}),
	)
}

// spend has another lot use up what workflows there are to spare, when its requests have
// gone on for a second: who is slow in a lot that is begun right after it stays there.
func (i *installation) spend(t *testing.T) {
	t.Helper()
	const more = 25 // than are spared at once
	endpoint := text(t, i.newEndpoint(t, "1s", "72h")["id"])
	i.call(t, http.MethodPatch, "/endpoints/"+endpoint, map[string]any{"max_in_flight": more})
	i.shareTo(t, endpoint, slices.Repeat([][]receivertest.Step{script(receivertest.Step{Delay: 2 * time.Second})}, more)...)
}
