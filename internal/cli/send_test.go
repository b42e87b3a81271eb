package cli_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The payload arrives byte for byte, however it is given, without surrounding white space.
func TestPayloadIsSentByteForByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, payload := range []string{
		`{}`, `null`, `17`, `"text"`, `[ ]`, `{ "b" : 1.0,` + "\n\t" + `"a":"<&>\u00e9é ` + "\u2028" + `" }`, `{"n":1e400,"m":-0}`,
		strings.Repeat(" ", 10) + `{"padded":true}` + "\n\n", `{"long":"` + strings.Repeat("x", 250_000) + `"}`,
	} {
		file := filepath.Join(t.TempDir(), "payload.json")
		require.NoError(t, os.WriteFile(file, []byte(payload), 0o600))
		for name, c := range map[string]call{
			"argument": {args: []string{"send", "order.paid", payload}},
			"file":     {args: []string{"send", "order.paid", "@" + file}},
			"stdin":    {args: []string{"send", "order.paid", "-"}, stdin: strings.NewReader(payload)},
		} {
			c.args = at(b.url, append(c.args, "--json")...)
			r := c.run(t)
			require.Zero(t, r.code, "%s: %s", name, r.stderr)
			var posted map[string]any
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &posted))
			require.Equal(t, strings.TrimSpace(payload), b.ok("events", "payload", posted["id"].(string)), name)
		}
	}
	event, _ := b.send("order.paid")
	require.Equal(t, `{}`, b.ok("events", "payload", event), "without a payload")
}

// Invalid JSON is rejected by the command, with the position and without the payload. The
// API reports its own violations.
func TestBadPayloads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const canary = "canary"
	large := `"` + strings.Repeat("x", webhook.LargestMaxPayload) + `"`
	file := filepath.Join(t.TempDir(), "large.json")
	require.NoError(t, os.WriteFile(file, []byte(large), 0o600))
	for _, c := range []struct{ payload, want string }{
		{"", "payload: is empty"},
		{"canary", "payload: is not JSON: invalid character 'c' looking for beginning of value (line 1, column 1); a text needs its double quotes"},
		{"{\"canary\":1,\n \"é\" 2}", "payload: is not JSON: invalid character '2' after object key (line 2, column 6)"},
		{`{"canary":`, "payload: is not JSON: unexpected end of JSON input (line 1, column 10)"},
		{`{"canary":1} {}`, "payload: is not JSON: invalid character '{' after top-level value (line 1, column 14)"},
		{"\"\xff\"", "payload: is not valid UTF-8"},
		{"@" + file, "payload: is larger than 4194304 bytes"},
		{"@" + file + ".none", "payload: open " + file + ".none: no such file or directory"},
	} {
		line := b.fails("send", "order.paid", c.payload)
		require.Contains(t, line, "everpost: "+c.want)
		require.NotContains(t, line, canary)
	}
	require.Equal(t, `everpost: type: must be a letter or digit, then letters, digits and . : / - _, at most 128 characters; got "my order"`,
		b.fails("send", "my order", `{"a":1,"a":2}`))
	require.Contains(t, b.fails("send", "", `{}`), "everpost: type: ")
	require.Equal(t, map[string]any{"data": []any{}, "next_cursor": nil}, b.json("events", "list"), "nothing was stored")
}

func TestSendFlags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.endpoint("--event-type=nothing"), b.endpoint("--event-type=nothing,order.*")
	printed := b.ok("send", "user.created", `{}`)
	require.Regexp(t, `^evt_\w+  stored  no delivery: no_matching_endpoint\n$`, printed)
	printed = b.ok("send", "order.paid", `{}`)
	require.Regexp(t, `^evt_\w+  stored\ndlv_\w+  to `+two+`  pending\n$`, printed)

	posted := b.json("send", "user.created", "--endpoint="+one, "--endpoint="+two)
	require.Len(t, posted["deliveries"], 2)
	posted = b.json("send", "order.paid", "--deliver-at=90m", "--external-id=order 17")
	require.Equal(t, "order 17", posted["external_id"])
	due, err := time.Parse(time.RFC3339, posted["deliver_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(90*time.Minute), due, time.Minute)
	posted = b.json("send", "order.paid", "--deliver-at="+due.Format(time.RFC3339Nano))
	require.Equal(t, due.Format("2006-01-02T15:04:05.000000Z"), posted["deliver_at"])

	posted = b.json("send", "order.paid", "--header=X-Region: eu:west,1", "--header=X-Other:2", "--tag=order:17", "--tag=eu-west")
	require.Equal(t, []any{"order:17", "eu-west"}, posted["tags"])
	shown := b.json("events", "get", posted["id"].(string))
	require.Equal(t, map[string]any{"X-Region": "eu:west,1", "X-Other": "2"}, shown["headers"])
	require.Len(t, b.json("events", "list", "--tag=eu-west")["data"], 1)
	require.Equal(t, "order:17 eu-west", rows(t, b.ok("events", "list", "--tag=order:17"))[1][6])
	require.Empty(t, b.json("events", "list", "--tag=eu")["data"])
	require.Contains(t, b.fails("send", "order.paid", "--header=X-Region"), "--header: must be of the form 'Name: value'")
	require.Contains(t, b.fails("send", "order.paid", "--header=Host: a"), "headers.Host: is reserved and cannot be set")
	require.Contains(t, b.fails("send", "order.paid", "--tag=a,b"), "tags[0]: must be 1 to 64 letters, digits and . : / - _")
	for _, flag := range []string{"--external-id=once", "--idempotency-key=once"} {
		first := b.run("send", "order.paid", `{"n":1}`, flag)
		again := b.run("send", "order.paid", `{"n":1}`, flag)
		require.Empty(t, first.stderr)
		require.Equal(t, first.stdout, again.stdout)
		require.Contains(t, again.stderr, "sent before")
		require.Contains(t, b.fails("send", "order.paid", `{"n":2}`, flag), "another body")
	}
	require.Contains(t, b.fails("send", "order.paid", "--endpoint="+webhook.NewEndpointID().String()), "endpoint_ids: names an endpoint that does not exist")
	require.Contains(t, b.fails("send", "order.paid", "--endpoint=dlv_1"), `--endpoint: "dlv_1" is not an id of the form ep_…`)
	require.Contains(t, b.fails("send", "order.paid", "--deliver-at=tomorrow"),
		`--deliver-at: "tomorrow" is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m`)
	require.Contains(t, b.fails("send", "order.paid", "--wait", "--timeout=-1s"), "--timeout: must be more than 0s")
}

// waiting is a running send --wait.
type waiting struct {
	*testing.T

	lines *bufio.Scanner
	ended chan result
}

// wait starts a send --wait and returns it with the ids of the event's deliveries, which it
// prints first.
func wait(t *testing.T, deliveries int, args ...string) (*waiting, []string) {
	t.Helper()
	reader, writer := io.Pipe()
	w := &waiting{t, bufio.NewScanner(reader), make(chan result, 1)}
	run := call{args: args, stdout: writer}.prepare(t)
	go func() {
		w.ended <- run()
		_ = writer.Close()
	}()
	w.line("  stored")
	ids := make([]string, deliveries)
	for i := range ids {
		ids[i], _, _ = strings.Cut(w.line("  pending"), " ")
	}
	return w, ids
}

// line returns the next line, which must contain the text.
func (w *waiting) line(want string) string {
	w.Helper()
	if !w.lines.Scan() {
		r := <-w.ended
		require.FailNow(w, "it ended", "%q was expected: %s", want, r.stderr)
	}
	require.Contains(w, w.lines.Text(), want)
	return w.lines.Text()
}

// end returns the result; nothing more is printed.
func (w *waiting) end() result {
	w.Helper()
	require.False(w, w.lines.Scan(), w.lines.Text())
	return <-w.ended
}

// --wait prints each attempt once, when it is recorded, and ends with the last delivery.
func TestSendWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	w, ids := wait(t, 1, at(b.url, "send", "order.paid", "--wait")...)
	b.attempted(ids[0], 1, 503, webhook.StateRetrying)
	w.line(ids[0] + "  attempt 1  503 Service Unavailable, 41 ms, next in 1m0s (retry_after)")
	b.attempted(ids[0], 2, 500, webhook.StateRetrying)
	w.line(ids[0] + "  attempt 2  500 Internal Server Error, ")
	b.attempted(ids[0], 3, 200, webhook.StateDelivered)
	w.line(ids[0] + "  attempt 3  200 delivered, 41 ms")
	w.line(ids[0] + "  delivered")
	require.Equal(t, result{}, w.end())
}

// One undelivered delivery of several fails the command, which names it and still waits for
// the others.
func TestSendWaitsForAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	b.endpoint()
	w, ids := wait(t, 2, at(b.url, "send", "order.paid", "--wait")...)
	b.attempted(ids[1], 1, 400, webhook.StateDeadLettered)
	w.line(ids[1] + "  attempt 1  400 Bad Request")
	w.line(ids[1] + "  dead_lettered")
	b.attempted(ids[0], 1, 200, webhook.StateDelivered)
	w.line(ids[0] + "  attempt 1  200 delivered")
	w.line(ids[0] + "  delivered")
	r := w.end()
	require.Equal(t, 1, r.code)
	require.Equal(t, "everpost: not delivered: "+ids[1]+" is dead_lettered (max_attempts)\n", r.stderr)
}

// With --json only the final event is printed, also when the deliveries have not ended in
// time.
func TestSendWaitTimesOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	_, ids := b.send("order.paid", "--external-id=once")
	b.attempted(ids[0], 1, 503, webhook.StateRetrying)
	r := b.run("send", "order.paid", "--external-id=once", "--wait", "--timeout=250ms", "--json")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^everpost: not finished after 250ms, delivery continues: `+ids[0]+
		` is retrying, next attempt at \d{4}-\d\d-\d\d [\d:]{8}\n$`, r.stderr)
	var event map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &event))
	require.Equal(t, "retrying", event["deliveries"].([]any)[0].(map[string]any)["state"])

	b.attempted(ids[0], 2, 200, webhook.StateDelivered)
	event = b.json("send", "order.paid", "--external-id=once", "--wait")
	require.Equal(t, "delivered", event["deliveries"].([]any)[0].(map[string]any)["state"])
	r = b.run("send", "user.created", "--wait", "--endpoint="+event["endpoint_ids"].([]any)[0].(string), "--timeout=1ms")
	require.Contains(t, r.stderr, " is pending\n")
}

// The command does not wait for an event that matches no endpoint.
func TestSendWithoutDeliveriesDoesNotWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Regexp(t, `^evt_\w+  stored  no delivery: no_matching_endpoint\n$`, b.ok("send", "order.paid", "--wait"))
}

// The command keeps waiting while the API is unavailable: the event is stored. It ends when
// its key is revoked.
func TestSendWaitsThroughAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint()
	target, err := url.Parse(b.url)
	require.NoError(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	var fault, reads atomic.Int64 // status of the response to a read; 0: normal, 1: no response
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if status := int(fault.Load()); status != 0 && r.Method == http.MethodGet {
			defer reads.Add(1)
			if status == 1 {
				panic(http.ErrAbortHandler)
			}
			rw.WriteHeader(status)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	defer front.Close()
	fail := func(status int64) {
		fault.Store(status)
		until := reads.Load() + 2
		require.Eventually(t, func() bool { return reads.Load() >= until }, 30*time.Second, time.Millisecond)
	}

	w, ids := wait(t, 1, at(front.URL, "send", "order.paid", "--wait")...)
	for _, status := range []int64{1, 503, 429} {
		fail(status)
	}
	b.attempted(ids[0], 1, 200, webhook.StateDelivered)
	fault.Store(0)
	w.line("attempt 1")
	w.line("delivered")
	require.Equal(t, result{}, w.end())

	w, _ = wait(t, 1, at(front.URL, "send", "order.paid", "--wait")...)
	fault.Store(http.StatusUnauthorized)
	r := w.end()
	require.Equal(t, 4, r.code)
	require.Contains(t, r.stderr, "answered 401 Unauthorized")

	fault.Store(http.StatusBadGateway)
	r = call{args: at(front.URL, "send", "order.paid", "--wait", "--timeout=200ms")}.run(t)
	require.Contains(t, r.stderr, "not finished after 200ms")
	require.Contains(t, r.stderr, "the last check failed: "+front.URL+" answered 502 Bad Gateway")
}

// Without a response it is unknown whether the event is stored; the error says so and what
// to do.
func TestSendWithUnknownResult(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	r := call{args: at(server.URL, "send", "order.paid")}.run(t)
	require.Equal(t, 5, r.code)
	require.Contains(t, r.stderr, "no answer from "+server.URL+": EOF; the event may be stored: sent again it may be delivered twice")
	r = call{args: at(server.URL, "send", "order.paid", "--external-id=x")}.run(t)
	require.Contains(t, r.stderr, "the event may be stored: send exactly the same again, it is stored once")
	r = call{args: at("http://"+closedPort(t), "send", "order.paid")}.run(t)
	require.Contains(t, r.stderr, "is Everpost running at http://127.0.0.1:")
	require.NotContains(t, r.stderr, "may be stored")
}
