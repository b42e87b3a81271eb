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
	require.Equal(t, []any{"running", 60.}, releaseOf(a.json["release"]))
	a = b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", "")
	require.Equal(t, []any{"running", 60.}, releaseOf(a.json["release"]))

	b.endpoints[0].State = webhook.EndpointDisabled
	b.ok(t, http.StatusConflict, "admin", "POST", path+"/pause", "")
	a = b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", `{"rate_per_minute":null}`)
	require.Equal(t, "active", a.json["state"])
	require.Equal(t, []any{"running", nil}, releaseOf(a.json["release"]))
	require.Empty(t, b.woken)
}

// releaseOf is the state and the rate of a release.
func releaseOf(shown any) []any {
	r := shown.(map[string]any)
	return []any{r["state"], r["rate_per_minute"]}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoint(t)
	none := b.ok(t, http.StatusOK, "admin", "GET", path+"/release", "").json
	require.Equal(t, []any{"done", nil}, releaseOf(none))
	require.Nil(t, none["started_at"])
	require.Nil(t, none["total"])

	b.ok(t, http.StatusOK, "admin", "POST", path+"/pause", "")
	b.ok(t, http.StatusConflict, "admin", "PATCH", path+"/release", `{"state":"running"}`)
	b.ok(t, http.StatusOK, "admin", "POST", path+"/resume", "")
	r := b.releases[b.endpoints[0].ID]
	r.Total, r.Released = new(int64(10)), 4
	b.putRelease(r)
	shown := b.ok(t, http.StatusOK, "admin", "GET", path+"/release", "").json
	require.Equal(t, []any{10., 4., 6.}, []any{shown["total"], shown["released"], shown["remaining"]})

	for _, c := range []struct {
		change string
		want   []any
	}{
		{`{"state":"stopped"}`, []any{"stopped", nil}},
		{`{"rate_per_minute":60}`, []any{"stopped", 60.}},
		{`{"state":"running","rate_per_minute":null}`, []any{"running", nil}},
	} {
		require.Equal(t, c.want, releaseOf(b.ok(t, http.StatusOK, "admin", "PATCH", path+"/release", c.change).json), c.change)
	}
	b.refused(t, "admin", "PATCH", path+"/release", `{"state":"done","rate_per_minute":60001}`,
		"state", `must be "running" or "stopped"`, "rate_per_minute", "must be a whole number from 1 to 60000")
	b.refused(t, "admin", "PATCH", path+"/release", `{"total":1}`, "total", "is not a known field")
	b.ok(t, http.StatusBadRequest, "admin", "PATCH", path+"/release", `{}`)
	b.ok(t, http.StatusForbidden, "ingest", "GET", path+"/release", "")
	b.ok(t, http.StatusNotFound, "admin", "GET", "/v1/tenants/acme/endpoints/"+webhook.NewEndpointID().String()+"/release", "")
}
