package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// A pause holds and drops nothing. A resume releases at the requested rate. A held delivery takes commands.
func TestPauseHoldsAndResumeReleases(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	ep := b.endpoint(r, "/hook", nil)
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/pause", nil, nil)

	var ids []string
	for range 20 {
		_, d := b.postOne("order.paid", `{}`)
		ids = append(ids, d.ID)
	}
	for _, id := range ids {
		d := b.waitState(id, "held")
		require.Zero(t, d.Attempts)
		require.True(t, d.NextAttemptAt.IsZero())
	}
	require.Zero(t, r.Count(), "nothing is sent to a paused endpoint")
	got := b.command(http.StatusConflict, ids[0], "retry", nil)
	require.Contains(t, string(got.body), `"state":"held"`)
	b.command(http.StatusAccepted, ids[0], "cancel", nil)
	b.waitState(ids[0], "cancelled")

	var resumed client.ResumedEndpoint
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/resume", fieldsOf{"rate_per_minute": 6000}, &resumed)
	require.Equal(t, client.EndpointActive, resumed.State)
	require.Equal(t, client.ReleaseRunning, resumed.Release.State)
	for _, id := range ids[1:] {
		require.Equal(t, 1, b.waitState(id, "delivered").Attempts)
	}
	require.Equal(t, len(ids)-1, r.Count(), "each once")
	eventually(contextFor(t, patience), t, func() string {
		var release client.Release
		b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+ep.ID+"/release", nil, &release)
		if release.State != client.ReleaseDone {
			return "the release is " + string(release.State)
		}
		require.EqualValues(t, len(ids)-1, release.Released)
		require.Zero(t, *release.Remaining)
		return ""
	})
	_, d := b.postOne("order.paid", `{}`)
	b.waitState(d.ID, "delivered")
}

// While an endpoint is paused, the time for the retries of its deliveries stands still, for 30 days at most.
func TestPausedForLong(t *testing.T) {
	t.Parallel()
	in, _, database, _ := serving(t, "paused")
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	ep := b.endpoint(r, "/hook", fieldsOf{"retry_policy": fieldsOf{"preset": "default", "give_up_after": "1h"}})
	// hold has a delivery that was held so long ago.
	hold := func(ago time.Duration) delivery {
		b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/pause", nil, nil)
		_, posted := b.postOne("order.paid", `{}`)
		d := b.waitState(posted.ID, "held")
		require.WithinRange(t, d.HeldAt.Time, d.CreatedAt.Time, time.Now().Add(time.Second))
		require.Equal(t, d.HeldAt.Add(30*24*time.Hour), d.GiveUpAt.Time)
		_, err := database.Exec(t.Context(), `
			update deliveries set held_at = held_at - $1::interval, held_until = held_until - $1::interval, give_up_at = give_up_at - $1::interval
			where state = 2`, ago)
		require.NoError(t, err)
		return d
	}
	sent := hold(100 * time.Hour)
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/resume", nil, nil)
	d := b.waitState(sent.ID, "delivered")
	require.Equal(t, 1, d.Attempts)
	require.True(t, d.HeldAt.IsZero())

	late := b.waitState(hold(31*24*time.Hour).ID, "dead_lettered")
	require.Equal(t, "held_expired", text(late.Reason))
	require.Equal(t, 1, r.Count())
}
