package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// remedy is an API that explains everything with one action and takes note of the other requests.
type remedy struct {
	action explain.Action

	mu     sync.Mutex
	called []string
	body   map[string]any
}

func (a *remedy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/deliveries/") && r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(map[string]any{"summary": "It waits.", "explanation": map[string]any{
			"code": "waits_circuit", "actions": []any{map[string]any{"act": a.action.Act, "id": nullable(a.action.ID), "body": a.action.Body}},
		}})
		return
	}
	text, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.called, a.body = append(a.called, r.Method+" "+r.URL.Path), nil
	_ = json.Unmarshal(text, &a.body)
	_, _ = io.WriteString(w, `{"id":"an-id","state":"running","decision":"delivered","reason":"delivered","status":200}`)
}

func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Every command that an explanation prints is complete: pasted into a shell as it is, it makes the call that the API names.
func TestEveryPrintedCommandCanBePasted(t *testing.T) {
	t.Parallel()
	endpoint := webhook.NewEndpointID()
	delivery := webhook.DeliveryIDOf(webhook.NewEventID(), endpoint).String()
	since := time.Date(2026, 1, 31, 9, 30, 0, 123456000, time.UTC).Format(time.RFC3339Nano)
	ids := map[explain.Act]string{
		explain.SendNow: delivery, explain.SendAgain: delivery, explain.Discard: delivery, explain.ResumeEndpoint: endpoint.String(),
		explain.TestEndpoint: endpoint.String(), explain.CloseCircuit: endpoint.String(),
	}
	bodies := map[explain.Act]map[string]string{
		explain.SendEventsAgain:      {"source": "events", "endpoint_id": endpoint.String(), "event_type": "order.paid/eu:1", "since": since},
		explain.SendDeadLettersAgain: {"source": "dead_letters", "endpoint_id": endpoint.String()},
	}
	for _, act := range explain.Acts() {
		t.Run(string(act), func(t *testing.T) {
			t.Parallel()
			api := &remedy{action: explain.Action{Act: act, TenantID: "acme", ID: ids[act], Body: bodies[act]}}
			require.False(t, api.action.ID == "" && api.action.Body == nil, "an act without a case")
			server := httptest.NewServer(api)
			defer server.Close()
			printed := call{args: at(server.URL, "explain", delivery)}.run(t)
			require.Zero(t, printed.code, printed.stderr)
			require.NotContains(t, printed.stdout, operatorKey)
			line := regexp.MustCompile(`(?m)everpost .*$`).FindString(printed.stdout)
			require.Contains(t, line, "--tenant acme --url "+server.URL, printed.stdout)

			pasted := call{args: append(words(t, line), "--key="+operatorKey)}.run(t)
			require.Zero(t, pasted.code, "%s: %s", line, pasted.stderr)
			method, path := api.action.Call()
			require.Contains(t, api.called, method+" "+path, line)
			for name, value := range api.action.Body {
				require.Equal(t, value, api.body[name], name)
			}
		})
	}
}

// words are the arguments that a shell makes of a command line of everpost.
func words(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `everpost() { for word; do printf '%s\0' "$word"; done; }; `+line).Output()
	require.NoError(t, err, line)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// What needs quotes has them.
func TestAPrintedCommandIsQuoted(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"a b", "it's", "$HOME", "`id`", `"`, `\`, "*", "a;b", "ü", "", "x\ny", "#", "~", "plain", "http://127.0.0.1:8080/x"} {
		require.Equal(t, []string{"--data-dir", odd}, words(t, "everpost "+cli.CommandLine([]string{"--data-dir", odd})), "%q", odd)
	}
}
