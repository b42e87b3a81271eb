package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/everpost/everpost/internal/receivertest"
)

// TestCanaries plants a marker wherever a user's secret may be, lets deliveries
// succeed, fail in several ways, die and come back, and finds none of the markers in
// the log, the metrics, the histories of the workflows or what their pages show.
func TestCanaries(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	random := base64.StdEncoding.EncodeToString([]byte("canary-secret-0123456789abcdefgh")) // 24 to 64 bytes
	markers := map[string]string{
		"secret": random, "payload": "canarypayload7391", "url": "canaryurltoken5527", "header": "canaryheader8164",
	}
	target := func(path, url string) endpoint {
		return b.endpoint(r, path, fieldsOf{
			"url": url + path, "secret": "whsec_" + random, "headers": fieldsOf{"X-Api-Key": markers["header"]}, "event_types": []string{"c" + path[1:6]},
		})
	}
	query := "?token=" + markers["url"]
	target("/alive"+query, r.URL())
	target("/retry"+query, r.URL())
	target("/perma"+query, r.URL())
	target("/drops"+query, r.URL())
	target("/slows"+query, r.URL())
	target("/nones"+query, "http://127.0.0.1:1") // nobody listens there
	echo := "refused: " + markers["payload"] + markers["header"]
	r.Script("/retry", receivertest.Step{Status: 500, Body: echo, Header: map[string]string{"X-Echo": markers["header"]}})
	r.Script("/perma", receivertest.Step{Status: 400, Body: echo})
	r.Script("/drops", receivertest.Step{Drop: true}, receivertest.Step{Raw: echo})
	r.Script("/slows", receivertest.Step{Delay: 1500 * 1e6})
	payload := `{"marker":"` + markers["payload"] + `"}`
	kinds := map[string]string{
		"calive": "delivered", "cretry": "delivered", "cperma": "dead_lettered", "cdrops": "delivered", "cslows": "delivered", "cnones": "dead_lettered",
	}
	workflows := map[string]string{} // to the event's id
	for kind, state := range kinds {
		e, d := b.postOne(kind, payload)
		d = b.waitState(d.ID, state)
		if kind == "cperma" {
			b.command(http.StatusAccepted, d.ID, "replay", nil)
			d = b.waitState(d.ID, "delivered")
		}
		workflows[d.WorkflowID] = e.ID
	}
	// The door, too, has something to say about what is wrong with a request.
	b.ask(http.StatusBadRequest, http.MethodPost, "/events", `{"type":"a","payload":"`+markers["payload"]+`\u0000"}`, nil)

	ctx, engine := contextFor(t, patience), b.in.temporal(t)
	log, err := os.ReadFile(b.in.logPath)
	require.NoError(t, err)
	requireNoMarker(t, "the log", string(log), markers)
	metrics, err := (&door{base: b.in.addr["admin"], http: http.DefaultClient}).call(ctx, http.MethodGet, "/metrics", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, metrics.status)
	requireNoMarker(t, "the metrics", string(metrics.body), markers)
	for id, eventID := range workflows {
		histories := historiesOf(ctx, t, engine, id)
		require.Contains(t, histories, eventID, "the search finds what is there")
		requireNoMarker(t, "the history of "+id, histories, markers)
		described, err := engine.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: client.DefaultNamespace, Execution: execution(id),
		})
		require.NoError(t, err)
		requireNoMarker(t, "the page of "+id, legible(t, described), markers)
	}
	// They did go where they belong.
	request := r.Requests()[0]
	require.Equal(t, payload, string(request.Body))
	require.Equal(t, markers["header"], request.Header.Get("X-Api-Key"))
}

// historiesOf is the text of all runs of a workflow id that are still known.
func historiesOf(ctx context.Context, t *testing.T, engine client.Client, id string) string {
	t.Helper()
	var all strings.Builder
	runs := 0
	eventually(ctx, t, func() string { // the list of runs follows a moment later
		found, err := engine.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + id + "'"})
		require.NoError(t, err)
		all.Reset()
		runs = len(found.GetExecutions())
		for _, e := range found.GetExecutions() {
			events := engine.GetWorkflowHistory(ctx, id, e.GetExecution().GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for events.HasNext() {
				event, err := events.Next()
				require.NoError(t, err)
				all.WriteString(legible(t, event))
			}
		}
		if runs == 0 {
			return "no run of " + id + " is listed"
		}
		return ""
	})
	return all.String()
}

// legible is a message as JSON, and once more as it is on the wire: JSON would hide
// what is in its byte fields behind base64.
func legible(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	wire, err := proto.Marshal(m)
	require.NoError(t, err)
	return string(text) + "\n" + string(wire) + "\n"
}

// requireNoMarker finds the markers also where they are encoded once more.
func requireNoMarker(t *testing.T, place, text string, markers map[string]string) {
	t.Helper()
	for name, marker := range markers {
		for _, spelling := range spellings(marker) {
			if at := strings.Index(text, spelling); at >= 0 {
				require.Failf(t, "a marker leaked", "%s holds the %s marker: …%q…", place, name, text[max(0, at-200):min(len(text), at+200)])
			}
		}
	}
}

// spellings are a text as it is, in hex, and in base64 at each of the three places
// in a group where it may begin, without what depends on its neighbours.
func spellings(s string) []string {
	all := []string{s, hex.EncodeToString([]byte(s))}
	for shift := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", shift) + s))
		all = append(all, encoded[(8*shift+5)/6:len(encoded)-2])
	}
	return all
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "x", "xy", "xyz"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(before + "canarypayload7391" + "after"))
		found := 0
		for _, spelling := range spellings("canarypayload7391") {
			if strings.Contains(encoded, spelling) {
				found++
			}
		}
		require.Equal(t, 1, found, "%q", before)
	}
}
