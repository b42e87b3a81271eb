package e2e_test

import (
	"net/http"
	"testing"

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
