package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// postUntil posts events one after another until the channel is closed, and returns those
// that were acknowledged, in order.
func (b *bundle) postUntil(stop <-chan struct{}) (events []event, err error) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return events, nil
		default:
		}
		var made event
		got, err := b.client.call(b.t.Context(), http.MethodPost, b.path("/events"), fmt.Sprintf(`{"type":"a.load","payload":%d}`, n))
		if err == nil && got.status != http.StatusAccepted {
			err = fmt.Errorf("answer %d: %s", got.status, got.body)
		}
		if err == nil {
			err = got.into(&made)
		}
		if err != nil {
			return events, err
		}
		events = append(events, made)
	}
}

// A pause in the middle of the load holds what comes and loses nothing; after the resume
// all of it arrives, each once, the oldest first.
func TestPauseUnderLoad(t *testing.T) {
	t.Parallel()
	const before, held, ends = 20, 40, 5
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	ctx, stop := contextFor(t, patience), make(chan struct{})
	var (
		load   sync.WaitGroup
		events []event
		fault  error
	)
	load.Go(func() { events, fault = b.postUntil(stop) })
	end := sync.OnceFunc(func() {
		close(stop)
		load.Wait()
	})
	defer end()

	_, err := r.WaitFor(ctx, before)
	require.NoError(t, err)
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/pause", nil, nil)
	eventually(ctx, t, func() string {
		if n := len(b.listDeliveries(url.Values{"endpoint_id": {ep.ID}, "state": {"held"}})); n < held {
			return fmt.Sprintf("%d are held", n)
		}
		return ""
	})
	end()
	require.NoError(t, fault)
	eventually(ctx, t, func() string {
		if n := len(b.listDeliveries(url.Values{"endpoint_id": {ep.ID}, "state": {"pending", "retrying"}})); n > 0 {
			return fmt.Sprintf("%d are neither delivered nor held", n)
		}
		return ""
	})
	waiting := b.listDeliveries(url.Values{"endpoint_id": {ep.ID}, "state": {"held"}})
	require.Equal(t, len(events)-len(waiting), r.Count(), "what is held was not sent")

	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/resume", fieldsOf{"rate_per_minute": 300}, nil)
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	b.allDelivered(contextFor(t, longRecovery), r, ids)
	place := map[string]int{}
	for i, request := range r.Requests() {
		place[request.WebhookID()] = i
	}
	require.Equal(t, len(events), r.Count(), "each once")
	require.Len(t, place, len(events))

	// Five go in a second, side by side: only what is far apart, here 6 s or more, keeps its order for sure.
	slices.SortFunc(waiting, func(x, y delivery) int { return cmp.Compare(x.ID, y.ID) })
	var oldest, newest []int
	for i := range ends {
		oldest = append(oldest, place[waiting[i].EventID])
		newest = append(newest, place[waiting[len(waiting)-1-i].EventID])
		require.Equal(t, 1, b.delivery(waiting[i].ID).Attempts)
	}
	require.Less(t, slices.Max(oldest), slices.Min(newest), "the oldest are released first")
}
