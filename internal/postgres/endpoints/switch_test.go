package endpoints_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	id := b.Subscriber.ID
	by := storetest.TestActor()
	for range 2 {
		e, err := b.PauseEndpoint(t.Context(), by, "acme", id, "it moves")
		require.NoError(t, err)
		require.Equal(t, webhook.EndpointPaused, e.State)
		require.Equal(t, "paused by hand (it moves)", e.StateReason)
		require.Equal(t, by.Who(), e.StateBy)
		require.WithinDuration(t, time.Now(), e.StateSince, time.Minute)
		require.Equal(t, int64(2), e.Version, "the second changes nothing")
	}
	target, err := b.Endpoints.Cache().Target(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointPaused, target.State, "known here at once")

	start := b.AcceptOne(t) // still matched
	_, err = b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateHeld))
	require.NoError(t, err)
	e, r, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", id, 42, "it has moved")
	require.NoError(t, err)
	require.Equal(t, webhook.EndpointActive, e.State)
	require.Equal(t, "resumed by hand (it has moved)", e.StateReason)
	require.Equal(t, webhook.ReleaseRunning, r.State)
	require.Equal(t, 42, r.Rate)
	require.Nil(t, r.Total, "not counted yet")
	require.Equal(t, -1, bytes.Compare(start.DeliveryID[:], r.Until[:]))

	_, again, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", id, 42, "")
	require.NoError(t, err)
	require.Equal(t, r, again, "there is nothing to be resumed")
	_, again, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", id, 50, "")
	require.NoError(t, err)
	require.Equal(t, 50, again.Rate)
	require.Equal(t, r.StartedAt, again.StartedAt)

	_, err = b.Pool().Exec(t.Context(), `update endpoints set state = $1`, int16(webhook.EndpointDisabled))
	require.NoError(t, err)
	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", id, "")
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "other", id, "")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, _, err = b.ResumeEndpoint(t.Context(), storetest.TestActor(), "other", id, 1, "")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}
