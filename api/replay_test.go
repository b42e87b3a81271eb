package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func (m *memory) CreateReplay(_ context.Context, by webhook.Actor, r webhook.Replay) (webhook.Replay, error) {
	defer m.lock()()
	if _, ok := m.tenants[r.TenantID]; !ok {
		return r, webhook.NotFound("tenant")
	}
	if _, err := m.endpoint(r.TenantID, r.Filter.EndpointID); err != nil && !r.Filter.EndpointID.IsZero() {
		return r, webhook.Invalid("endpoint_id", "names an endpoint that does not exist")
	}
	r.ID, r.Rate, r.CreatedAt, r.Total = webhook.NewReplayID(), r.Asked, m.now(), new(int64(300))
	m.replays, m.actors = append(m.replays, r), append(m.actors, by)
	return r, m.broken
}

func (m *memory) Replay(_ context.Context, tenant string, id webhook.ReplayID) (webhook.Replay, error) {
	defer m.lock()()
	for _, r := range m.replays {
		if r.ID == id && r.TenantID == tenant {
			return r, m.broken
		}
	}
	return webhook.Replay{}, webhook.NotFound("replay")
}

func (m *memory) ListReplays(_ context.Context, tenant string, p webhook.Page) ([]webhook.Replay, error) {
	defer m.lock()()
	return pageIn(m.replays, p, func(r webhook.Replay) ([16]byte, bool) { return r.ID, r.TenantID == tenant }), m.broken
}

func (m *memory) CommandReplay(ctx context.Context, _ webhook.Actor, tenant string, id webhook.ReplayID, c webhook.ReplayCommand) (webhook.Replay, error) {
	r, err := m.Replay(ctx, tenant, id)
	if err != nil {
		return r, err
	}
	if !r.State.Open() {
		return r, &webhook.Error{Code: webhook.CodeConflict, Message: "the replay is " + r.State.String()}
	}
	if r.Command.Action == webhook.ReplayCancel {
		return r, &webhook.Error{Code: webhook.CodeConflict, Message: "the replay is being cancelled"}
	}
	if c.Action == webhook.ReplayPause && r.State == webhook.ReplayPaused {
		return r, nil
	}
	c.ID = 7
	r.Command = c
	if c.Rate != 0 {
		r.Asked = c.Rate
	}
	return r, nil
}

func (m *memory) WakeReplay(_ context.Context, r webhook.Replay) {
	defer m.lock()()
	m.woken = append(m.woken, r)
}

const replaysPath = "/v1/tenants/acme/replays"

func TestReplayShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint(t)
	a := b.ok(t, http.StatusAccepted, "operator", "POST", replaysPath, `{"source":"dead_letters"}`)
	id := a.json["id"].(string)
	shape := func(state, filters, counts string) string {
		return fmt.Sprintf(`{"id":%q,%s,"source":"dead_letters",%s,%s,"ramp":true,"created_at":"2026-01-31T09:30:00.123456Z",`, id, state, filters, counts)
	}
	workflow := fmt.Sprintf(`"workflow_id":"replay/%s","workflow_url":"http://ui.example/replay%%2F%s"}`, id, id)
	none := `"endpoint_id":null,"event_type":null,"reason":null,"status":null,"since":null,"until":null,` +
		`"ended_since":null,"ended_until":null,"include_unmatched":false`
	want := shape(`"state":"running","state_reason":null`, none,
		`"total":300,"released":0,"skipped":0,"delivered":0,"failed":0,"rate_per_minute":100,"current_rate_per_minute":100`) + `"completed_at":null,` + workflow
	require.Equal(t, want, strings.TrimSpace(a.text))
	require.Equal(t, want, strings.TrimSpace(b.ok(t, http.StatusOK, "operator", "GET", replaysPath+"/"+id, "").text))
	require.Equal(t, id, b.woken[0].ID.String(), "its workflow is started")
	require.Equal(t, "req-1", b.actors[len(b.actors)-1].RequestID)

	r := &b.replays[0]
	r.State, r.StateReason = webhook.ReplayPaused, "paused: 31 of 40 first attempts failed"
	r.ReplayCounts = webhook.ReplayCounts{Released: 40, Skipped: 2, Delivered: 9, Failed: 31}
	r.Rate, r.CompletedAt = 50, testNow()
	require.Equal(t, shape(`"state":"paused","state_reason":"paused: 31 of 40 first attempts failed"`, none,
		`"total":null,"released":40,"skipped":2,"delivered":9,"failed":31,"rate_per_minute":100,"current_rate_per_minute":50`)+
		`"completed_at":"2026-01-31T09:30:00.123456Z",`+workflow, strings.TrimSpace(b.ok(t, http.StatusOK, "operator", "GET", replaysPath+"/"+id, "").text))

	r.State, r.StateReason = webhook.ReplayQueued, ""
	queued := b.ok(t, http.StatusOK, "operator", "GET", replaysPath+"/"+id, "").json
	require.Equal(t, "queued", queued["state"])
	require.Equal(t, "waits until fewer replays of the tenant, or of all tenants, run", queued["state_reason"])
	require.Nil(t, queued["workflow_url"], "it has no workflow yet")

	a = b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, `{"source":"dead_letters","endpoint_id":"`+ep+`",`+
		`"event_type":"order.paid","reason":"http_400","status":400,"since":"2026-01-01T00:00:00Z",`+
		`"until":"2026-02-01T00:00:00Z","ended_since":"2026-01-02T00:00:00Z","rate_per_minute":6000,"ramp":false}`)
	for name, value := range map[string]any{
		"endpoint_id": ep, "event_type": "order.paid", "reason": "http_400", "status": 400., "since": "2026-01-01T00:00:00.000000Z",
		"until": "2026-02-01T00:00:00.000000Z", "ended_since": "2026-01-02T00:00:00.000000Z", "ended_until": nil, "rate_per_minute": 6000., "ramp": false,
	} {
		require.Equal(t, value, a.json[name], name)
	}
	list := b.ok(t, http.StatusOK, "ingest", "GET", replaysPath+"?limit=1", "")
	require.Equal(t, a.json["id"], list.json["data"].([]any)[0].(map[string]any)["id"])
	list = b.ok(t, http.StatusOK, "ingest", "GET", replaysPath+"?limit=1&cursor="+list.json["next_cursor"].(string), "")
	require.Equal(t, id, list.json["data"].([]any)[0].(map[string]any)["id"])
	require.Nil(t, list.json["next_cursor"])
}

func TestReplayIsValidated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint(t)
	notARate, forEvents := "must be a whole number from 1 to 60000", `is required with the source "events"`
	for body, want := range map[string][]string{
		`{}`:                                   {"source", "is required"},
		`{"source":"all","rate_per_minute":0}`: {"source", `must be "dead_letters" or "events"`, "rate_per_minute", notARate},
		`{"source":"dead_letters","rate_per_minute":60001}`:                                          {"rate_per_minute", notARate},
		`{"source":"dead_letters","rate_per_minute":1.5}`:                                            {"rate_per_minute", notARate},
		`{"source":"dead_letters","rate":1}`:                                                         {"rate", "is not a known field"},
		`{"source":"dead_letters","ramp":"yes"}`:                                                     {"ramp", "must be true or false"},
		`{"source":"dead_letters","endpoint_id":"evt_1"}`:                                            {"endpoint_id", "is not an id of the form ep_…"},
		`{"source":"dead_letters","event_type":"order*"}`:                                            {"event_type", notAFilter},
		`{"source":"dead_letters","include_unmatched":true}`:                                         {"include_unmatched", `is for the source "events" only`},
		`{"source":"dead_letters","reason":""}`:                                                      {"reason", notPrintable(maxReason)},
		`{"source":"dead_letters","status":99}`:                                                      {"status", "must be a whole number from 100 to 999"},
		`{"source":"dead_letters","since":"yesterday"}`:                                              {"since", notATime},
		`{"source":"events"}`:                                                                        {"endpoint_id", forEvents, "since", forEvents},
		`{"source":"events","endpoint_id":"` + ep + `","since":"2026-01-01T00:00:00Z","reason":"x"}`: {"reason", `is for the source "dead_letters" only`},
		`{"source":"dead_letters","since":"2026-01-01T00:00:00Z","until":"2026-01-01T00:00:00Z"}`:    {"until", "must be after since"},
		`{"source":"dead_letters","endpoint_id":"` + webhook.NewEndpointID().String() + `"}`:         {"endpoint_id", "names an endpoint that does not exist"},
	} {
		b.refused(t, "admin", "POST", replaysPath, body, want...)
	}
	for body, want := range map[string][]string{
		`{"source":"dead_letters","ended_since":"1h"}`:                                                        {"ended_since", notATime},
		`{"source":"dead_letters","ended_since":"2026-01-02T00:00:00Z","ended_until":"2026-01-01T00:00:00Z"}`: {"ended_until", "must be after ended_since"},
		`{"source":"events","endpoint_id":"` + ep + `","since":"2026-01-01T00:00:00Z","ended_since":"2026-01-01T00:00:00Z"}`: {
			"ended_since", `is for the source "dead_letters" only`,
		},
	} {
		b.refused(t, "admin", "POST", replaysPath, body, want...)
	}
	events := `{"source":"events","endpoint_id":"` + ep + `","since":"2026-01-01T00:00:00Z","event_type":"order.*"`
	b.refused(t, "admin", "POST", replaysPath, events+`,"include_unmatched":1}`, "include_unmatched", "must be true or false")
	require.Empty(t, b.replays)
	require.Empty(t, b.woken)
	nulls := `{"source":"dead_letters","endpoint_id":null,"event_type":null,"reason":null,"status":null,"since":null,"until":null,` +
		`"include_unmatched":null,"rate_per_minute":null,"ramp":null}`
	require.EqualValues(t, 100, b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, nulls).json["rate_per_minute"])
	require.Equal(t, false, b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, events+`}`).json["include_unmatched"])
	require.Equal(t, true, b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, events+`,"include_unmatched":true}`).json["include_unmatched"])
	require.True(t, b.replays[len(b.replays)-1].Filter.IncludeUnmatched)
	b.ok(t, http.StatusForbidden, "ingest", "POST", replaysPath, events+`,"include_unmatched":true}`)
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/replays", `{"source":"dead_letters"}`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", replaysPath, `{"source":"dead_letters"}`)
}

// Every action × every state.
func TestReplayCommands(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]webhook.ReplayCommand{
		"POST /pause": {ID: 7, Action: webhook.ReplayPause}, "POST /resume": {ID: 7, Action: webhook.ReplayResume},
		"POST /cancel": {ID: 7, Action: webhook.ReplayCancel}, "PATCH ": {ID: 7, Rate: 600},
	} {
		method, action, _ := strings.Cut(address, " ")
		body, name := "", strings.TrimPrefix(action, "/")
		if method == "PATCH" {
			body, name = `{"rate_per_minute":600}`, "another rate"
		}
		for _, state := range webhook.ReplayStates() {
			b := setup(t)
			id := b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, `{"source":"dead_letters"}`).json["id"].(string)
			path := replaysPath + "/" + id + action
			b.woken = nil
			b.replays[0].State = state
			if !state.Open() {
				a := b.ok(t, http.StatusConflict, "admin", method, path, body)
				want := fmt.Sprintf(`{"type":"https://everpost.dev/errors/conflict","title":"Not possible in the present state",`+
					`"status":409,"detail":"%s is not possible: the replay is %s","request_id":"req-1","help":"/docs/errors#conflict","state":%q}`,
					name, state, state)
				require.Equal(t, want, strings.TrimSpace(a.text))
				require.Empty(t, b.woken)
				continue
			}
			require.Equal(t, id, b.ok(t, http.StatusAccepted, "admin", method, path, body).json["id"])
			if want.Action == webhook.ReplayPause && state == webhook.ReplayPaused {
				require.Empty(t, b.woken, "the command has no effect")
				continue
			}
			require.Equal(t, want, b.woken[0].Command)
			b.refused(t, "admin", method, path, `{"x":1}`, refusedAs(method)...)
			b.ok(t, http.StatusForbidden, "ingest", method, path, body)
			b.ok(t, http.StatusNotFound, "foreign", method, strings.Replace(path, "acme", "other", 1), body)

			b.replays[0].Command.Action = webhook.ReplayCancel
			a := b.ok(t, http.StatusConflict, "admin", method, path, body)
			require.Equal(t, name+" is not possible: the replay is being cancelled", a.json["detail"])
		}
	}
}

func refusedAs(method string) []string {
	if method == "PATCH" {
		return []string{"x", "is not a known field", "rate_per_minute", "is required"}
	}
	return []string{"x", "is not a known field"}
}

func TestReplayRateIsChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := replaysPath + "/" + b.ok(t, http.StatusAccepted, "admin", "POST", replaysPath, `{"source":"dead_letters","rate_per_minute":5}`).json["id"].(string)
	a := b.ok(t, http.StatusAccepted, "admin", "PATCH", path, `{"rate_per_minute":600}`)
	require.Equal(t, []any{600., 5.}, []any{a.json["rate_per_minute"], a.json["current_rate_per_minute"]})
	a = b.ok(t, http.StatusAccepted, "admin", "PATCH", path, `{"rate_per_minute":null}`)
	require.EqualValues(t, 100, a.json["rate_per_minute"])
	b.refused(t, "admin", "PATCH", path, `{"rate_per_minute":0}`, "rate_per_minute", "must be a whole number from 1 to 60000")
	b.refused(t, "admin", "PATCH", path, `{"rate_per_minute":1,"ramp":true}`, "ramp", "is set when the replay is created and cannot be changed")
	b.ok(t, http.StatusNotFound, "admin", "PATCH", replaysPath+"/rpl_1", `{"rate_per_minute":1}`)
	b.ok(t, http.StatusNotFound, "admin", "GET", replaysPath+"/"+webhook.NewReplayID().String(), "")
}

func (m *memory) CountReplay(_ context.Context, r webhook.Replay) (*int64, error) {
	defer m.lock()()
	if _, ok := m.tenants[r.TenantID]; !ok {
		return nil, webhook.NotFound("tenant")
	}
	n := int64(0)
	for _, d := range m.deliveries {
		if d.TenantID == r.TenantID && d.State == webhook.StateDeadLettered && r.Source == webhook.ReplayDeadLetters {
			n++
		}
	}
	return &n, m.broken
}

func TestPreviewReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := replaysPath + "/preview"
	require.JSONEq(t, `{"total":0}`, b.ok(t, http.StatusOK, "admin", "POST", path, `{"source":"dead_letters"}`).text)
	b.endpoint(t)
	b.posted(t)
	b.deliveries[0].State, b.deliveries[0].Reason = webhook.StateDeadLettered, "max_attempts"
	require.JSONEq(t, `{"total":1}`, b.ok(t, http.StatusOK, "admin", "POST", path, `{"source":"dead_letters"}`).text)
	require.Empty(t, b.replays, "nothing is stored")
	events := `{"source":"events","endpoint_id":"` + b.endpoint(t) + `","since":"2026-01-01T00:00:00Z","status":400}`
	b.refused(t, "admin", "POST", path, events, "status", `is for the source "dead_letters" only`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, `{"source":"dead_letters"}`)
}
