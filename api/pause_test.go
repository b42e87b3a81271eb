package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoint(t)
	for range 2 {
		require.Equal(t, "paused", b.ok(t, http.StatusOK, "admin", "POST", path+"/pause", "").json["state"])
	}
	b.refused(t, "admin", "POST", path+"/pause", `{"x":1}`, "x", "is not a known field")
	b.refused(t, "admin", "POST", path+"/resume", `{"rate_per_minute":0}`, "rate_per_minute", "must be a whole number from 1 to 60000")
	b.refused(t, "admin", "POST", path+"/resume", `{"rate":1}`, "rate", "is not a known field")
	require.Equal(t, webhook.EndpointPaused, b.endpoints[0].State)

	a := b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", `{"rate_per_minute":60}`)
	require.Equal(t, "active", a.json["state"])
	require.Regexp(t, "^rpl_", a.json["replay_id"])
	require.Equal(t, []int{60}, rates(b.woken))
	a = b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", "")
	require.Nil(t, a.json["replay_id"], "it was active")
	require.Equal(t, []int{60}, rates(b.woken))

	b.endpoints[0].State = webhook.EndpointDisabled
	b.ok(t, http.StatusConflict, "admin", "POST", path+"/pause", "")
	require.Equal(t, "active", b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", `{"rate_per_minute":null}`).json["state"])
	require.Equal(t, []int{60, resumeRate}, rates(b.woken))
}

func rates(replays []webhook.Replay) []int {
	var all []int
	for i := range replays {
		all = append(all, replays[i].Asked)
	}
	return all
}
