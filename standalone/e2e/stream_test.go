package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	posters   = 4                     // callers at a time
	postEvery = 25 * time.Millisecond // of each: together some 100 events/s, which two cores can handle in addition to the tests
)

// stream is callers who post events one after the other, each again under the same
// external id until it is acknowledged: what a careful backend does.
type stream struct {
	b      *bundle
	prefix string
	ctx    context.Context
	ended  chan struct{} // closed by end: no new event
	all    sync.WaitGroup

	mu      sync.Mutex
	acked   []string // ids of the events that were acknowledged
	refused int      // 503 with Retry-After
	broken  int      // no answer at all
	odd     []string // what a caller must never see
}

// stream begins to post. It goes on until end.
func (b *bundle) stream(prefix string) *stream {
	b.t.Helper()
	s := &stream{b: b, prefix: prefix, ctx: contextFor(b.t, 3*patience), ended: make(chan struct{})}
	for n := range posters {
		s.all.Go(func() { s.post(n) })
	}
	return s
}

func (s *stream) post(poster int) {
	every := time.NewTicker(postEvery)
	defer every.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.ended:
			return
		case <-s.ctx.Done():
			return
		case <-every.C:
		}
		body := fmt.Sprintf(`{"type":"stream.event","payload":{"n":%d},"external_id":"%s-%d-%d"}`, n, s.prefix, poster, n)
		for !s.once(body) {
			select {
			case <-s.ctx.Done():
				return
			case <-every.C:
			}
		}
	}
}

// once posts and reports whether the event was acknowledged.
func (s *stream) once(body string) bool {
	got, err := s.b.client.call(s.ctx, http.MethodPost, s.b.path("/events"), body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken++
		return false
	}
	switch got.status {
	case http.StatusAccepted:
		var e event
		if err := got.into(&e); err != nil || len(e.Deliveries) != 1 {
			s.odd = append(s.odd, fmt.Sprintf("202 with %q", got.body))
		}
		s.acked = append(s.acked, e.ID)
		return true
	case http.StatusServiceUnavailable:
		s.refused++
		if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 1 {
			s.odd = append(s.odd, fmt.Sprintf("503 with Retry-After %q", got.header.Get("Retry-After")))
		}
	case http.StatusConflict: // the try before is still under way
	default:
		s.odd = append(s.odd, fmt.Sprintf("%d %s", got.status, got.body))
	}
	return false
}

func (s *stream) count() (acked, refused, broken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked), s.refused, s.broken
}

// waitMore waits until n more events have been acknowledged.
func (s *stream) waitMore(t *testing.T, n int) {
	t.Helper()
	before, _, _ := s.count()
	eventually(contextFor(t, patience), t, func() string {
		if now, _, _ := s.count(); now < before+n {
			return fmt.Sprintf("%d events acknowledged, not %d more", now-before, n)
		}
		return ""
	})
}

// end waits until each event that was posted is acknowledged, and returns them all.
func (s *stream) end(t *testing.T) []string {
	t.Helper()
	close(s.ended)
	s.all.Wait()
	require.NoError(t, s.ctx.Err(), "the last events were never acknowledged")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.odd, "answers that a caller must never see")
	distinct := map[string]bool{}
	for _, id := range s.acked {
		require.False(t, distinct[id], "two events were given the id %s", id)
		distinct[id] = true
	}
	return s.acked
}
