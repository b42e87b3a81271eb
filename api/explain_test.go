package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// A list reads what its explanations need once, however many deliveries it has.
func TestListsReadOnceForAllExplanations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.posted(t) // each with another endpoint, which gets the later events as well
	}
	b.seen = []webhook.Observation{{Circuit: webhook.CircuitOpen, NextProbe: testNow().Add(time.Minute), Why: "5 of 5 requests failed, the last with http_503"}}
	for i := range b.deliveries {
		b.deliveries[i].Reason, b.deliveries[i].DueAt = webhook.ReasonCircuitOpen, testNow().Add(time.Minute)
	}
	list := b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath, "").json["data"].([]any)
	require.Len(t, list, 6)
	require.Equal(t, 1, b.observations)
	for _, d := range list {
		require.Equal(t, "Waits because the circuit of the endpoint has been open after 5 of 5 requests failed, the last with 503 Service Unavailable; "+
			"attempt 1 follows at 09:31:00 UTC, in 60 s; tried until 3 Feb 09:30 UTC.", d.(map[string]any)["summary"])
		require.NotContains(t, d, "explanation")
	}
	b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/dead-letters", "")
	require.Equal(t, 1, b.observations, "there was nothing to explain")
}

// What cannot be read makes an explanation less exact, and nothing else.
func TestExplanationsWithoutAllFacts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	b.unexplained = errors.New("away")
	d := &b.deliveries[0]
	d.State, d.Attempts, d.DueAt = webhook.StateRetrying, 1, testNow().Add(time.Minute)
	d.LastOutcome = &webhook.LastOutcome{Decision: retry.Retry, Reason: "connect_refused", At: testNow()}
	const want = "Attempt 1 at 09:30:00 UTC failed: the receiver refused the connection; attempt 2 follows at 09:31:00 UTC, in 60 s; until 3 Feb 09:30 UTC."
	require.Equal(t, want, b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath+"/"+delivery, "").json["summary"])
	require.Equal(t, want, b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath, "").json["data"].([]any)[0].(map[string]any)["summary"])
	require.Contains(t, b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"/"+event, "").text, want)
	none := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"user.created","payload":{},"endpoint_ids":null}`)
	require.NotContains(t, b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"/"+none.json["id"].(string), "").json, "summary")
	require.NotContains(t, b.log.String(), `"level":"ERROR"`)
}

// What this process knows of requests under way, of Temporal and of dead letters is said.
func TestExplanationsOfThisProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.DeadLettersKept = 30 * 24 * time.Hour })
	_, delivery := b.posted(t)
	summary := func() any {
		return b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath+"/"+delivery, "").json["summary"]
	}
	b.down = testNow().Add(-time.Minute)
	require.Equal(t, "Attempt 1 waits because Temporal has been unreachable since 09:29:00 UTC, 60 s ago; it is made when Temporal is back.", summary())
	b.sentAt = testNow().Add(-3 * time.Second)
	require.Equal(t, "Attempt 1 was sent at 09:29:57 UTC, 3 s ago, and has no answer yet; it times out after 15 s.", summary())
	d := &b.deliveries[0]
	d.State, d.Reason, d.CompletedAt = webhook.StateDeadLettered, "terminated", testNow()
	require.Equal(t, "Given up at 09:30:00 UTC, 0 s after it was accepted: its workflow was terminated from outside; "+
		"kept as a dead letter until 2 Mar 09:30 UTC.", summary())
}

// The error of the last attempt and the deliveries that go first are part of one delivery's explanation.
func TestExplanationOfOneDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, delivery := b.posted(t)
	d := &b.deliveries[0]
	d.State, d.Attempts, d.Reason, d.DueAt = webhook.StateRetrying, 1, webhook.ReasonRate, testNow().Add(time.Minute)
	d.LastOutcome = &webhook.LastOutcome{Decision: retry.Retry, Reason: "tls_invalid", At: testNow()}
	b.attempts[d.DeliveryID] = []webhook.Attempt{{Number: 1, Run: 1, Error: "tls_invalid: the certificate is for another host"}}
	b.ahead = 212
	cause := func() any {
		a := b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath+"/"+delivery, "")
		return a.json["explanation"].(map[string]any)["cause"]
	}
	require.Equal(t, "212 of the endpoint's deliveries come before it.", cause())
	b.stale = true
	require.Contains(t, cause(), "The worker that enforces the endpoint's limits did not answer in time")
	d.Reason = ""
	require.Equal(t, "The TLS handshake failed. The error was: the certificate is for another host.", cause())
}

// The document lists the codes that there are.
func TestOpenAPIListsEveryCode(t *testing.T) {
	t.Parallel()
	var document struct {
		Components struct {
			Schemas struct {
				Explanation struct {
					Properties struct {
						Code struct {
							Enum []explain.Code `yaml:"enum"`
						} `yaml:"code"`
					} `yaml:"properties"`
				} `yaml:"Explanation"` //nolint:tagliatelle // as in the document
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	require.NoError(t, yaml.Unmarshal(openAPISource, &document))
	require.Equal(t, fmt.Sprint(explain.Codes()), fmt.Sprint(document.Components.Schemas.Explanation.Properties.Code.Enum))
}
