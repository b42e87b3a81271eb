package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	id := b.endpoint.ID
	for range 2 {
		e, err := b.PauseEndpoint(t.Context(), testActor(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, webhook.EndpointPaused, e.State)
		require.Equal(t, "paused by hand", e.StateReason)
		require.Equal(t, int64(2), e.Version, "the second changes nothing")
	}
	target, err := b.endpointCache.Target(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointPaused, target.State, "known here at once")

	start := b.accept(t) // still matched
	_, err = b.Record(t.Context(), stepOf(start, 1, webhook.StateHeld))
	require.NoError(t, err)
	e, r, err := b.ResumeEndpoint(t.Context(), testActor(), "acme", id, 42)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointActive, e.State)
	require.Empty(t, e.StateReason)
	stored, err := b.Replay(t.Context(), "acme", r.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.ReplayHeld, stored.Source)
	require.Equal(t, id, stored.Filter.EndpointID)
	require.Equal(t, 42, stored.Asked)
	require.Nil(t, stored.Total)

	_, r, err = b.ResumeEndpoint(t.Context(), testActor(), "acme", id, 42)
	require.NoError(t, err)
	require.Zero(t, r.ID, "there is nothing to be resumed")
	require.Equal(t, 1, b.count(t, "replays"))

	_, err = b.Pool().Exec(t.Context(), `update endpoints set state = $1`, int16(webhook.EndpointDisabled))
	require.NoError(t, err)
	_, err = b.PauseEndpoint(t.Context(), testActor(), "acme", id)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	_, err = b.PauseEndpoint(t.Context(), testActor(), "other", id)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, _, err = b.ResumeEndpoint(t.Context(), testActor(), "other", id, 1)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

// What was held after the replay of a resume had passed is released later.
func TestReleaseForgotten(t *testing.T) {
	t.Parallel()
	b := setupDelivery(t)
	start := b.accept(t)
	_, err := b.Record(t.Context(), stepOf(start, 1, webhook.StateHeld))
	require.NoError(t, err)
	released := func() bool {
		t.Helper()
		require.NoError(t, b.ReleaseForgotten(t.Context(), 10))
		standing, err := b.Standing(t.Context(), start.DeliveryID)
		require.NoError(t, err)
		return standing.Command.Command == webhook.CommandRelease
	}
	set := func(sql string) {
		t.Helper()
		_, err := b.Pool().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.False(t, released(), "the endpoint has just become active")
	set(`update endpoints set updated_at = now() - interval '2 minutes', state = 1`)
	require.False(t, released(), "it is paused")
	set(`update endpoints set state = 0`)
	r, err := b.CreateReplay(t.Context(), testActor(), webhook.Replay{
		TenantID: "acme", Source: webhook.ReplayHeld, Filter: webhook.ReplayFilter{EndpointID: start.EndpointID}, Asked: 1,
	})
	require.NoError(t, err)
	require.False(t, released(), "a replay is about to")
	set(`update replays set state = 2`)
	set(`update deliveries set due_at = now() + interval '1 day'`)
	require.False(t, released(), "it was rescheduled, and waits for that")
	set(`update deliveries set due_at = null, reason = 'backlog'`)
	require.False(t, released(), "it waits until the gate has room for it")
	set(`update deliveries set reason = 'paused'`)
	require.True(t, released())
	commands, err := b.Unanswered(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, commands, 1, "the relay tells its workflow at once")
	require.NotZero(t, r.ID)
}
