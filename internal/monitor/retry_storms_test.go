package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Only more than a hundred retries, and more than five for each first attempt, are a storm.
func TestInRetryStorm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, retries int
		want           bool
	}{{0, 0, false}, {0, 100, false}, {0, 101, true}, {20, 100, false}, {20, 101, true}, {21, 105, false}, {21, 106, true}, {1000, 5000, false}} {
		require.Equal(t, c.want, inRetryStorm(&webhook.Observation{First: c.first, Retries: c.retries}), c)
	}
}

// A retry storm is announced once an hour by all processes together.
func TestRetryStormsAreAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, other := b.process(t), b.process(t)
	for _, m := range []*process{one, other} {
		for range 110 {
			m.storms.checked = map[webhook.EndpointID]time.Time{} // as if 10 s had gone by
			b.send(t, m, 2, 404)
			m.checkRetryStorms()
		}
		require.True(t, m.metric(t, "everpost_retry_storms_total 1"))
	}
	at := time.Now()
	require.Zero(t, one.events.writeAll(t.Context()))
	require.Zero(t, other.events.writeAll(t.Context()))
	stored := b.stored(t, webhook.EventRetryStorm)
	if at.Truncate(time.Hour).Equal(at.Add(-time.Minute).Truncate(time.Hour)) { // not around a full hour
		require.Len(t, stored, 1)
	}
	require.Equal(t, "Within 15 min the endpoint was sent 0 first attempts and 101 retries.", stored[0]["summary"])
}

func TestRetryStormChecksAreSpaced(t *testing.T) {
	t.Parallel()
	s, id, now := newRetryStorms(), webhook.NewEndpointID(), time.Now()
	s.retried(id, now)
	s.retried(id, now.Add(stormCheckEvery-1))
	require.Equal(t, []webhook.EndpointID{id}, s.take())
	require.Empty(t, s.take())
	s.retried(id, now.Add(stormCheckEvery))
	require.Len(t, s.take(), 1)
	require.True(t, s.warningDue(id, now))
	require.False(t, s.warningDue(id, now.Add(stormWarnEvery-1)))
	require.True(t, s.warningDue(id, now.Add(stormWarnEvery)))
	for range 3 * maxStormEntries {
		s.retried(webhook.NewEndpointID(), now)
		now = now.Add(time.Millisecond)
	}
	require.LessOrEqual(t, len(s.checked), maxStormEntries)
	require.LessOrEqual(t, len(s.take()), maxStormEntries)
}
