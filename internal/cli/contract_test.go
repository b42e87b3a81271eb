package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Routes that no other test of this package covers with a real API: method, path, query and
// body of each command's request, and the output of its response.
func TestContract(t *testing.T) {
	t.Parallel()
	const (
		ep     = "ep_06f4q2m0hhf5dd6cs7m9k2q8xw"
		dlv    = "dlv_06f4q2m0hhf5dd6cs7m9k2q8xw"
		evt    = "evt_06f4q2m0hhf5dd6cs7m9k2q8xw"
		rpl    = "rpl_06f4q2m0hhf5dd6cs7m9k2q8xw"
		replay = `{"id":"` + rpl + `","state":"running","state_reason":null,"total":300,"released":20,"delivered":18,"failed":2,` +
			`"rate_per_minute":100,"created_at":"2026-01-31T09:30:00.000000Z","completed_at":null}`
	)
	for _, c := range []struct {
		args    string
		request string // method, path and query, and the body
		answer  string
		want    string // a part of what is printed
		code    int
	}{
		{
			"deliveries reschedule " + dlv + " --at=2026-02-01T10:00:00+01:00",
			`POST /deliveries/` + dlv + `/reschedule {"at":"2026-02-01T09:00:00Z"}`,
			`{"id":"` + dlv + `","state":"retrying"}`, dlv + "  reschedule accepted, retrying\n", 0,
		},
		{"replays create --endpoint=" + ep, `POST /replays {"endpoint_id":"` + ep + `","source":"dead_letters"}`, replay, "released         20\n", 0},
		{
			"replays create --source=dead_letters --all --rate-per-minute=30 --no-ramp",
			`POST /replays {"ramp":false,"rate_per_minute":30,"source":"dead_letters"}`,
			replay, "state_reason     -\n", 0,
		},
		{
			"replays create --source=events --endpoint=" + ep + " --since=2026-01-01T00:00:00Z --until=2026-01-02T00:00:00.5Z --event-type=a.b",
			`POST /replays {"endpoint_id":"` + ep + `","event_type":"a.b","since":"2026-01-01T00:00:00Z","source":"events","until":"2026-01-02T00:00:00.5Z"}`,
			replay, rpl, 0,
		},
		{
			"dead-letters replay --all --reason=max_attempts --status=503 --rate-per-minute=0.5",
			`POST /replays {"rate_per_minute":0.5,"reason":"max_attempts","source":"dead_letters","status":503}`,
			replay, rpl, 0,
		},
		{"dead-letters replay --all", `POST /replays {"source":"dead_letters"}`, replay, rpl, 0},
		{
			"replays list --limit=3",
			`GET /replays?limit=3 `,
			`{"data":[` + strings.Replace(replay, `"rate_per`, `"current_rate_per_minute":100,"rate_per`, 1) + `],"next_cursor":null}`,
			rpl + "  running  300    20        18         2       100         2026-01-31 09:30:00  -\n", 0,
		},
		{"replays get " + rpl, `GET /replays/` + rpl + ` `, replay, "rate_per_minute  100\n", 0},
		{"replays get --json " + rpl, `GET /replays/` + rpl + ` `, replay, replay + "\n", 0},
		{
			"replays pause " + rpl, `POST /replays/` + rpl + `/pause `, strings.Replace(replay, `"running"`, `"paused"`, 1),
			"state            paused\n", 0,
		},
		{"replays resume " + rpl, `POST /replays/` + rpl + `/resume `, replay, "state            running\n", 0},
		{
			"replays cancel " + rpl, `POST /replays/` + rpl + `/cancel `, strings.Replace(replay, `"running"`, `"cancelled"`, 1),
			"state            cancelled\n", 0,
		},
		{"replays set-rate " + rpl + " 250", `PATCH /replays/` + rpl + ` {"rate_per_minute":250}`, replay, rpl, 0},
		{"endpoints pause " + ep, `POST /endpoints/` + ep + `/pause `, `{"state":"paused"}`, "state  paused\n", 0},
		{"endpoints release " + ep, `GET /endpoints/` + ep + `/release `, `{"state":"running","released":3}`, "released  3\n", 0},
		{"endpoints release --stop " + ep, `PATCH /endpoints/` + ep + `/release {"state":"stopped"}`, `{"state":"stopped"}`, "state  stopped\n", 0},
		{
			"endpoints release --go-on --rate-per-minute=60 " + ep, `PATCH /endpoints/` + ep + `/release {"rate_per_minute":60,"state":"running"}`,
			`{"state":"running"}`, "state  running\n", 0,
		},
		{"endpoints release --own-pace " + ep, `PATCH /endpoints/` + ep + `/release {"rate_per_minute":null}`, `{"state":"running"}`, "state  running\n", 0},
		{"endpoints resume " + ep, `POST /endpoints/` + ep + `/resume `, `{"state":"active"}`, "state  active\n", 0},
		{
			"endpoints close-circuit " + ep, `POST /endpoints/` + ep + `/close-circuit `,
			`{"state":"active","probe_delivery_id":null}`, "probe_delivery_id  -\n", 0,
		},
		{
			"endpoints resume --rate-per-minute=60 " + ep,
			`POST /endpoints/` + ep + `/resume {"rate_per_minute":60}`,
			`{"state":"active"}`, "state  active\n", 0,
		},
		{
			"endpoints rotate-secret " + ep, `POST /endpoints/` + ep + `/rotate-secret `,
			`{"secret":"whsec_x","public_key":null,"old_secrets_until":"2026-01-31T09:30:00.000000Z"}`, "secret             whsec_x\n", 0,
		},
		{
			"endpoints rotate-secret --grace=48h " + ep, `POST /endpoints/` + ep + `/rotate-secret {"grace":"48h0m0s"}`,
			`{"secret":"whsk_x","public_key":"whpk_x"}`, "public_key  whpk_x\n", 0,
		},
		{"endpoints rotate-secret --grace=soon " + ep, ``, ``, "", 2},
		{"endpoints rotate-secret --secret=whsec_x " + ep, ``, ``, "", 2},
		{
			"endpoints health " + ep, `GET /endpoints/` + ep + `/health `,
			`{"summary":"red \u001b[31m; 12 waiting","state":"paused","state_reason":"by hand","circuit":{"state":"closed"},` +
				`"explanation":{"code":"endpoint_paused"}}`,
			"red \\x1b[31m; 12 waiting\n\ncode                       endpoint_paused\nstate                      paused (by hand)\n", 0,
		},
		{"endpoints health --json " + ep, `GET /endpoints/` + ep + `/health `, `{"summary":"well","new":1}`, `{"summary":"well","new":1}` + "\n", 0},
		{
			"endpoints test " + ep, `POST /endpoints/` + ep + `/test `,
			`{"decision":"delivered","status":200,"reason":"delivered"}`, "200 delivered, 0 ms\n\ndecision", 0,
		},
		{
			"endpoints test --type=order.paid --payload=[1.0] " + ep, `POST /endpoints/` + ep + `/test {"type":"order.paid","payload":[1.0]}`,
			`{"decision":"retry","status":503,"reason":"http_503"}`, "503 Service Unavailable, 0 ms\n", 1,
		},
		{
			"endpoints test --payload={} --json " + ep, `POST /endpoints/` + ep + `/test {"payload":{}}`,
			`{"decision":"permanent"}`, `{"decision":"permanent"}` + "\n", 1,
		},
		{"endpoints test --payload={ " + ep, ``, ``, "", 2},
		{
			"deliveries attempts " + dlv, "GET /deliveries/" + dlv + "/attempts?limit=50 ",
			`{"data":[{"number":1,"run":1,"reason":"unknown","error":"red \u001b[31m"}],"next_cursor":null}`, "red \\x1b[31m\n", 0,
		},
		{
			"endpoints attempts " + ep, "GET /endpoints/" + ep + "/attempts?limit=50 ",
			`{"data":[{"delivery_id":"` + dlv + `","number":1,"run":1,"reason":"http_503"}],"next_cursor":null}`, dlv + "  1 ", 0,
		},
		{
			"events attempts --limit=2 " + evt, "GET /events/" + evt + "/attempts?limit=2 ",
			`{"data":[{"delivery_id":"` + dlv + `","number":1,"run":1,"reason":"http_503"}],"next_cursor":null}`, dlv + "  1 ", 0,
		},
		{
			"events cancel --reason=wrong " + evt, `POST /events/` + evt + `/cancel {"reason":"wrong"}`,
			`{"event_id":"` + evt + `","cancelled":2}`, `2`, 0,
		},
		{"replays get dlv_1", ``, ``, "", 2},
		{"replays get rpl_../x", ``, ``, "", 2},
		{"replays create --source=all", ``, ``, "", 2},
		{"replays create", ``, ``, "", 2},
		{"deliveries reschedule " + dlv, ``, ``, "", 2},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/v1/tenants/acme")+" "+string(body))
			if len(body) > 0 && r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer "+operatorKey {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = io.WriteString(w, c.answer)
		}))
		r := call{args: at(server.URL, strings.Fields(c.args)...)}.run(t)
		server.Close()
		require.Equal(t, c.code, r.code, "%s: %s", c.args, r.stderr)
		require.Equal(t, c.request, strings.Join(asked, "\n"), c.args)
		require.Contains(t, r.stdout, c.want, c.args)
	}
}
