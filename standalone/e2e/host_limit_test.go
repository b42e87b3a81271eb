package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedHost is a receiver that counts the requests it has at a time. It answers none
// before it is opened.
type sharedHost struct {
	*httptest.Server

	opened chan struct{}

	mu        sync.Mutex
	now, most int
}

func newSharedHost(t *testing.T) *sharedHost {
	t.Helper()
	c := &sharedHost{opened: make(chan struct{})}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.count(1)
		defer c.count(-1) // before the answer is sent: it is empty, and so not flushed
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-c.opened:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *sharedHost) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.most = max(c.most, c.now)
}

func (c *sharedHost) counts() (now, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.most
}

// Endpoints of several tenants on one host share its permits. A delivery that waits for one says so, and each endpoint gets its share.
func TestEndpointsOfAHostShareItsPermits(t *testing.T) {
	t.Parallel()
	const places = 3
	in := ownInstance(t, settings{"EVERPOST_MAX_IN_FLIGHT_PER_HOST": strconv.Itoa(places)})
	host, well := newSharedHost(t), newReceiver(t)
	many, few := newBundle(t, in, in.client(), tenantName("many")), newBundle(t, in, in.client(), tenantName("few"))
	point := func(b *bundle, kind string) (made endpoint) {
		b.ask(http.StatusCreated, http.MethodPost, "/endpoints", fieldsOf{
			"url": host.URL + "/" + kind, "event_types": []string{kind}, "timeout": "30s",
		}, &made)
		return made
	}
	point(many, "a.many")
	waiting := point(few, "a.few")
	point(few, "a.fewer")
	few.endpoint(well, "/well", fieldsOf{"event_types": []string{"a.well"}})

	all := map[*bundle][]delivery{many: many.postMany("a.many", 100)}
	eventually(contextFor(t, patience), t, func() string {
		if now, _ := host.counts(); now != places {
			return fmt.Sprintf("%d requests are under way, not %d", now, places)
		}
		return ""
	})
	all[few] = append(few.postMany("a.few", 5), few.postMany("a.fewer", 5)...)
	_, beside := few.postOne("a.well", `{}`)
	beside = few.waitState(beside.ID, "delivered")
	require.Less(t, beside.CompletedAt.Sub(beside.CreatedAt.Time), atOnceIs, "another host")
	for _, d := range few.waitAllWait(waiting.ID, 0) {
		require.Equal(t, "host_in_flight", text(d.Reason))
		require.Zero(t, d.Attempts)
	}
	few.requireExplained(few.waitAllWait(waiting.ID, 0)[0], "waits_host", `Waits because the receiver at 127\.0\.0\.1 is at the limit of requests `+
		`at a time that all endpoints of its host share; `+next, "")
	eventually(contextFor(t, patience), t, func() string {
		var health struct {
			Summary string `json:"summary"`
		}
		few.ask(http.StatusOK, http.MethodGet, "/endpoints/"+waiting.ID+"/health", nil, &health)
		if strings.Contains(health.Summary, "waiting for its host, whose cap all endpoints there share") {
			return ""
		}
		return "the health says " + health.Summary
	})

	close(host.opened)
	for b, deliveries := range all {
		for _, d := range deliveries {
			require.Equal(t, 1, b.waitStateIn(contextFor(t, longRecovery), d.ID, "delivered").Attempts, "waiting is no attempt")
		}
	}
	_, most := host.counts()
	require.Equal(t, places, most)
}
