package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// commanders give random commands to the deliveries of a stream. A command that is refused, or sent to a process that was just killed, is
// not repeated.
type commanders struct {
	b    *bundle
	stop chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	known []string
	taken map[string]int // by command
}

// commanders ask at random until end: n of deliveries, and one of each endpoint.
func (b *bundle) commanders(seed uint64, n int, endpoints ...endpoint) *commanders {
	c := &commanders{b: b, stop: make(chan struct{}), taken: map[string]int{}}
	for i := range n {
		c.all.Go(func() { c.ask(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	c.all.Go(c.look)
	for _, e := range endpoints {
		c.all.Go(func() { c.pauseAndResume(e) })
	}
	return c
}

func (c *commanders) end() {
	close(c.stop)
	c.all.Wait()
}

// every calls f in turns until end.
func (c *commanders) every(pause time.Duration, f func()) {
	turn := time.NewTicker(pause)
	defer turn.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-turn.C:
			f()
		}
	}
}

// look finds deliveries to ask something of.
func (c *commanders) look() {
	c.every(200*time.Millisecond, func() {
		var p page[delivery]
		got, err := c.b.client.call(c.b.t.Context(), http.MethodGet, c.b.path("/deliveries?limit=50"), nil)
		if err != nil || got.status != http.StatusOK || got.into(&p) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range p.Data {
			c.known = append(c.known, d.ID)
		}
		c.known = c.known[max(0, len(c.known)-200):]
	})
}

func (c *commanders) ask(random *rand.Rand) {
	c.every(40*time.Millisecond, func() {
		c.mu.Lock()
		id := ""
		if len(c.known) > 0 {
			id = c.known[random.IntN(len(c.known))]
		}
		c.mu.Unlock()
		what, body := "", any(nil)
		switch random.IntN(5) {
		case 0:
			what = "/deliveries/" + id + "/cancel"
		case 1:
			what = "/deliveries/" + id + "/retry"
		case 2:
			what = "/deliveries/" + id + "/reschedule"
			body = fieldsOf{"at": at(time.Now().Add(time.Duration(random.IntN(3000)) * time.Millisecond))}
		case 3:
			what = "/deliveries/" + id + "/replay"
		case 4:
			what = "/dead-letters/" + id + "/discard"
		}
		if id != "" {
			c.try(what, body)
		}
	})
}

func (c *commanders) try(what string, body any) {
	got, err := c.b.client.call(c.b.t.Context(), http.MethodPost, c.b.path(what), body)
	if err != nil || got.status >= 300 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[what[strings.LastIndex(what, "/")+1:]]++
}

func (c *commanders) pauseAndResume(e endpoint) {
	paused := false
	c.every(700*time.Millisecond, func() {
		if paused = !paused; paused {
			c.try("/endpoints/"+e.ID+"/pause", nil)
		} else {
			c.try("/endpoints/"+e.ID+"/resume", fieldsOf{"rate_per_minute": 60_000})
		}
	})
}

// Senders, random commands at any moment, and a process that is killed again and again: afterwards each acknowledged event has ended, and
// nothing is held for an active endpoint.
func TestCommandsAndKills(t *testing.T) {
	t.Parallel()
	kills, between := 2, 4*time.Second
	if os.Getenv("EVERPOST_TEST_LONG") != "" {
		kills, between = 4, 7*time.Second
	}
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	// One answer in four is a failure.
	for n := range 2000 {
		status := http.StatusOK
		if n%4 == 3 {
			status = http.StatusServiceUnavailable
		}
		if n%17 == 16 {
			status = http.StatusBadRequest
		}
		r.Script("/a", receivertest.Step{Status: status})
	}
	first := b.endpoint(r, "/a", fieldsOf{"circuit_breaker": fieldsOf{"enabled": false}, "auto_disable": false})
	second := b.endpoint(r, "/b", fieldsOf{"event_types": []string{"other.*"}})
	s := b.stream("c")
	c := b.commanders(1, 3, first, second)
	c.all.Go(func() {
		c.every(30*time.Millisecond, func() { // what is not acknowledged does not matter here
			_, _ = b.client.call(t.Context(), http.MethodPost, b.path("/events"),
				fieldsOf{"type": "other.event", "endpoint_ids": []string{second.ID}, "payload": 1})
		})
	})
	for range kills {
		// The moment is the input of this test, not something to wait for.
		select {
		case <-time.After(between):
		case <-in.process.Exited():
			require.Fail(t, "it ended by itself")
		}
		in.kill9()
		in.restart(t)
	}
	s.waitMore(t, 20)
	c.end()
	acked := s.end(t)
	for _, e := range []endpoint{first, second} {
		b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+e.ID+"/resume", fieldsOf{"rate_per_minute": 60_000}, nil)
	}

	begun := time.Now()
	eventually(contextFor(t, longRecovery), t, func() string {
		open := b.listDeliveries(url.Values{"state": {"pending", "retrying", "held"}})
		if len(open) == 0 {
			return ""
		}
		d := open[0]
		return fmt.Sprintf("%d are open; %s is %s (%s) after %d attempts, workflow %q, since %s",
			len(open), d.ID, d.State, text(d.Reason), d.Attempts, d.WorkflowID,
			d.CreatedAt.Format(time.TimeOnly))
	})
	t.Logf("%d events acknowledged over %d kills, commands taken: %v, all at rest %s after the last resume",
		len(acked), kills, c.taken, time.Since(begun).Round(time.Second))
	states, arrived := map[string]string{}, map[string]bool{}
	for _, d := range b.listDeliveries(url.Values{}) {
		if d.EndpointID == first.ID {
			states[d.EventID] = d.State
		}
	}
	for _, request := range r.Requests() {
		arrived[request.WebhookID()] = true
	}
	for _, id := range acked {
		require.NotEmpty(t, states[id], "event %s was acknowledged and has no delivery", id)
		if states[id] == "delivered" {
			require.True(t, arrived[id], "event %s is delivered and never arrived", id)
		}
	}
}
