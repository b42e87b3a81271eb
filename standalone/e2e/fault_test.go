package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// longRecovery is for a delivery whose request was under way when its process died:
// the claim of the dead one runs out after the longest deadline, 35 s, first.
const longRecovery = 2 * time.Minute

// kill9 kills the whole instance. The processes that it leaves behind must end by themselves.
func (in *instance) kill9() { in.process.Kill() }

func TestKilledWithDeliveriesUnderWay(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r, slow := newBundle(t, in, in.client(), "acme"), newReceiver(t), newReceiver(t)
	only := func(kind string) fieldsOf { return fieldsOf{"event_types": []string{kind}} }
	r.Script("/timer", receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "3"}})
	b.endpoint(r, "/timer", only("a.timer"))
	b.endpoint(r, "/burst", only("a.burst"))
	b.endpoint(slow, "/held", only("a.held"))
	slow.Hold()
	held, onHeld := b.postOne("a.held", `{}`)
	require.NoError(t, slow.WaitHeld(contextFor(t, patience), 1))
	timer, onTimer := b.postOne("a.timer", `{}`)
	b.waitState(onTimer.ID, "retrying")

	var (
		all sync.WaitGroup
		ids = make([]string, 20)
	)
	for n := range ids {
		all.Go(func() {
			var e event
			got, err := b.client.call(t.Context(), http.MethodPost, b.path("/events"), fmt.Sprintf(`{"type":"a.burst","payload":%d}`, n))
			if err == nil && got.status == http.StatusAccepted && got.into(&e) == nil {
				ids[n] = e.ID
			}
		})
	}
	all.Wait()
	in.kill9() // the moment the last one is acknowledged
	require.NotContains(t, ids, "", "all were acknowledged")
	slow.Release()
	require.Equal(t, 1, slow.Count())

	in.restart(t)
	in.requireOneServer(t)
	b.client = in.client()
	b.allDelivered(contextFor(t, longRecovery), r, append(ids, timer.ID))
	require.Equal(t, "delivered", b.delivery(onHeld.ID).State)
	require.Len(t, slow.of(held.ID), 2, "once before and, because its outcome is not known, once after")
	require.Len(t, r.of(timer.ID), 2, "an attempt on record is not repeated")
	require.Equal(t, 2, b.delivery(onTimer.ID).Attempts)
}

func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	const kills = 6
	seed := uint64(1)
	if given := os.Getenv("EVERPOST_TEST_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("EVERPOST_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	s := b.stream("k")
	s.waitMore(t, 10)
	for n := range kills {
		if n%2 == 1 { // every other time while it starts
			in.http.CloseIdleConnections()
			p, err := launch(in.env, in.log, "standalone")
			require.NoError(t, err)
			in.process = p
		} else if n > 0 {
			in.restart(t)
			s.waitMore(t, 1)
		}
		// The moment is the input of this test, not something to wait for.
		moment := time.Duration(random.Int64N(int64(2 * time.Second)))
		select {
		case <-time.After(moment):
		case <-in.process.Exited():
			require.Fail(t, "it ended by itself", "life %d", n)
		}
		in.kill9()
	}
	in.restart(t)
	in.requireOneServer(t)
	s.waitMore(t, 50)
	acked := s.end(t)
	_, _, broken := s.count()
	require.Positive(t, broken, "callers noticed the kills")

	b.allDelivered(contextFor(t, longRecovery), r, acked)
	require.Len(t, b.listDeliveries(url.Values{}), len(acked), "a post that is repeated makes no second event")
	t.Logf("%d events acknowledged over %d kills, %d requests at the receiver, %d posts without an answer", len(acked), kills, r.Count(), broken)
}

func TestPostgreSQLKilled(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r, slow := newBundle(t, in, in.client(), "acme"), newReceiver(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"event_types": []string{"stream.*"}})
	b.endpoint(slow, "/held", fieldsOf{"event_types": []string{"a.held"}})
	s := b.stream("p")
	s.waitMore(t, 50)
	slow.Hold()
	_, onHeld := b.postOne("a.held", `{}`)
	require.NoError(t, slow.WaitHeld(contextFor(t, patience), 1))

	for range 2 {
		postmaster := in.postmaster(t)
		require.NoError(t, syscall.Kill(postmaster, syscall.SIGKILL))
		slow.Release() // the first time: its answer comes while there is nowhere to write it down
		eventually(contextFor(t, patience), t, func() string {
			if now := in.postmaster(t); now == 0 || now == postmaster {
				return "PostgreSQL is not started again"
			}
			return ""
		})
		s.waitMore(t, 50) // by itself
	}
	require.True(t, in.process.Running(), "the process has lived through it")
	in.requireOneServer(t)
	acked := s.end(t)
	_, refused, broken := s.count()
	require.Positive(t, refused, "what cannot be stored is refused with 503")
	require.Zero(t, broken, "every caller got an answer")

	b.allDelivered(contextFor(t, longRecovery), r, acked)
	require.Len(t, b.listDeliveries(url.Values{"event_type": {"stream.event"}}), len(acked))
	require.Equal(t, "delivered", b.delivery(onHeld.ID).State)
	require.Equal(t, 1, slow.Count(), "an answer is not lost because the store was unavailable")
	t.Logf("%d events acknowledged, %d posts refused, %d requests at the receiver", len(acked), refused, r.Count())
}
