package app

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// recorded is an API process on a database, whose deliveries a test brings into any state.
type recorded struct {
	*App

	base     string // of the tenant
	endpoint string
}

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	a := start(t, options(t, postgrestest.New(t)))
	r := &recorded{App: a, base: "http://" + a.APIAddr() + "/v1/tenants/acme"}
	r.ok(t, http.StatusCreated, "PUT", "", `{}`)
	r.endpoint = r.ok(t, http.StatusCreated, "POST", "/endpoints", `{"url":"https://shop.example/hook?token=s3cr3t","event_types":["order.*"]}`)["id"].(string)
	return r
}

func (r *recorded) ok(t *testing.T, status int, method, path, body string) map[string]any {
	t.Helper()
	got, answer := call(t, method, r.base+path, body)
	require.Equal(t, status, got, "%s %s: %v", method, path, answer)
	return answer
}

// posted posts an event and returns the step that the delivery's first attempt may lead to.
func (r *recorded) posted(t *testing.T) webhook.Step {
	t.Helper()
	event := r.ok(t, http.StatusAccepted, "POST", "/events", `{"type":"order.paid","payload":{}}`)
	require.NotContains(t, event, "summary")
	stub := event["deliveries"].([]any)[0].(map[string]any)
	require.NotContains(t, stub, "summary")
	id, err := webhook.ParseDeliveryID(stub["id"].(string))
	require.NoError(t, err)
	d, err := r.store.Deliveries.Delivery(t.Context(), "acme", id)
	require.NoError(t, err)
	return webhook.Step{Ref: d.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, GiveUpAt: d.GiveUpAt}, WorkflowID: d.Ref.WorkflowID(1)}
}

// relative are the parts of a sentence that depend on when it is made.
var relative = regexp.MustCompile(`\d+ (s|min|h|days)\b`)

func timeless(text any) string { return relative.ReplaceAllString(text.(string), "…") }

// explained is the explanation of a delivery. Everywhere the delivery is shown, its summary is the same.
func (r *recorded) explained(t *testing.T, step *webhook.Step) (summary string, explanation map[string]any) {
	t.Helper()
	one := r.ok(t, http.StatusOK, "GET", "/deliveries/"+step.DeliveryID.String(), "")
	list := r.ok(t, http.StatusOK, "GET", "/deliveries?"+url.Values{"event_id": {step.EventID.String()}}.Encode(), "")
	event := r.ok(t, http.StatusOK, "GET", "/events/"+step.EventID.String(), "")
	listed := list["data"].([]any)[0].(map[string]any)
	require.NotContains(t, listed, "explanation")
	require.Equal(t, timeless(one["summary"]), timeless(listed["summary"]))
	require.Equal(t, timeless(one["summary"]), timeless(event["deliveries"].([]any)[0].(map[string]any)["summary"]))
	require.NotContains(t, fmt.Sprint(one), "s3cr3t")
	return one["summary"].(string), one["explanation"].(map[string]any)
}

// What the store holds decides what is said.
func TestExplanationsOfDeliveries(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	soon := func(s *webhook.Step) { s.DueAt = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond) }
	failed := func(reason string) func(*webhook.Step) {
		return func(s *webhook.Step) {
			status, _ := retry.Reason(reason).Status()
			s.State, s.Attempts, s.RunAttempts = webhook.StateRetrying, 1, 1
			s.Attempt = &webhook.Attempt{
				Number: 1, Run: 1, StartedAt: time.Now().UTC().Truncate(time.Microsecond),
				Outcome: retry.Outcome{Decision: retry.Retry, Reason: retry.Reason(reason), Status: status}, Error: reason + ": words of the error",
			}
		}
	}
	ended := func(state webhook.State, reason string) func(*webhook.Step) {
		return func(s *webhook.Step) { s.State, s.Reason, s.DueAt = state, reason, time.Time{} }
	}
	waits := func(state webhook.State, reason string) func(*webhook.Step) {
		return func(s *webhook.Step) { s.State, s.Reason = state, reason }
	}
	fault := func(s *webhook.Step) { s.LastError = "the secret cannot be opened" }
	for want, changes := range map[string][]func(*webhook.Step){
		"scheduled":         {soon},
		"retry_response":    {failed("http_503"), soon},
		"retry_after":       {failed("http_503"), soon, func(s *webhook.Step) { s.Attempt.Outcome.RetryAfter = time.Minute }},
		"retry_not_found":   {failed("http_404"), soon, func(s *webhook.Step) { s.Ambiguous = 1 }},
		"retry_timeout":     {failed("timeout_headers"), soon},
		"retry_connection":  {failed("connection_reset"), soon},
		"retry_dns":         {failed("dns_not_found"), soon},
		"retry_tls":         {failed("tls_invalid"), soon},
		"retry_token":       {failed("token_refused"), soon},
		"retry_unknown":     {failed("unknown"), soon},
		"waits_in_flight":   {waits(webhook.StatePending, webhook.ReasonInFlight), soon},
		"waits_host":        {waits(webhook.StatePending, webhook.ReasonHost), soon},
		"waits_rate":        {waits(webhook.StatePending, webhook.ReasonRate), soon},
		"waits_circuit":     {failed("http_503"), waits(webhook.StateRetrying, webhook.ReasonCircuitOpen), soon},
		"waits_receiver":    {waits(webhook.StatePending, webhook.ReasonRetryAfter), soon},
		"waits_capacity":    {waits(webhook.StatePending, webhook.ReasonCapacity), soon},
		"held_backlog":      {waits(webhook.StateHeld, webhook.ReasonBacklog)},
		"releasing":         {waits(webhook.StateHeld, webhook.ReasonPaused)},
		"internal_fault":    {waits(webhook.StateHeld, webhook.ReasonInternal), fault},
		"delivered":         {failed("http_200"), ended(webhook.StateDelivered, "")},
		"refused":           {failed("http_401"), ended(webhook.StateDeadLettered, "http_401")},
		"exhausted":         {failed("http_503"), ended(webhook.StateDeadLettered, "max_attempts")},
		"expired":           {ended(webhook.StateDeadLettered, webhook.ReasonHeldExpired)},
		"failed_internally": {ended(webhook.StateDeadLettered, webhook.ReasonInternal), fault},
		"terminated":        {ended(webhook.StateDeadLettered, webhook.ReasonTerminated)},
		"cancelled":         {ended(webhook.StateCancelled, "no longer needed")},
		"discarded":         {ended(webhook.StateDiscarded, webhook.ReasonDiscarded)},
	} {
		step := r.posted(t)
		for _, change := range changes {
			change(&step)
		}
		_, err := r.store.Deliveries.RecordStep(t.Context(), step)
		require.NoError(t, err)
		summary, got := r.explained(t, &step)
		require.Equal(t, want, got["code"], summary)
		if want == "retry_tls" || want == "retry_connection" || want == "retry_unknown" {
			require.Contains(t, got["cause"], "The error was: words of the error.", want)
		}
	}
	// Two deliveries to the endpoint were deferred to an earlier time, or are held and older.
	for _, state := range []webhook.State{webhook.StatePending, webhook.StateHeld} {
		for ahead := range 3 {
			step := r.posted(t)
			waits(state, map[bool]string{true: webhook.ReasonBacklog, false: webhook.ReasonRate}[state == webhook.StateHeld])(&step)
			if state == webhook.StatePending {
				step.DueAt = time.Now().Add(time.Minute + time.Duration(ahead)*time.Second).UTC().Truncate(time.Microsecond)
			}
			_, err := r.store.Deliveries.RecordStep(t.Context(), step)
			require.NoError(t, err)
			if ahead == 2 {
				_, got := r.explained(t, &step)
				before := 2
				if state == webhook.StateHeld {
					before += 3 // those of the table
				}
				require.Contains(t, got["cause"], fmt.Sprintf("%d of the endpoint's deliveries come before it.", before))
			}
		}
	}
}

// A claim is a request under way. Without one, and without Temporal, the first attempt waits.
func TestExplanationsOfFirstAttempts(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	step := r.posted(t)
	require.Eventually(t, func() bool {
		_, got := r.explained(t, &step)
		return got["code"] == "engine_away"
	}, 30*time.Second, 10*time.Millisecond)
	claim := webhook.Claim{Ref: step.Ref, Progress: step.Progress, WorkflowID: step.WorkflowID, Claimant: "another process", For: time.Minute}
	claim.Seq = 0
	granted, err := r.store.Deliveries.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.True(t, granted.Granted)
	summary, got := r.explained(t, &step)
	require.Equal(t, "in_progress", got["code"])
	require.Equal(t, "Attempt 1 is under way and has no answer yet; it times out after 15 s.", summary)
}

// The state of the endpoint decides what is said of its deliveries.
func TestExplanationsFollowTheEndpoint(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	step := r.posted(t)
	step.State, step.Reason, step.WorkflowID = webhook.StateHeld, webhook.ReasonPaused, ""
	r.ok(t, http.StatusOK, "POST", "/endpoints/"+r.endpoint+"/pause", "")
	_, err := r.store.Deliveries.RecordStep(t.Context(), step)
	require.NoError(t, err)
	summary, got := r.explained(t, &step)
	require.Equal(t, "held_paused", got["code"], summary)
	require.Contains(t, summary, "paused by hand")
	health := r.ok(t, http.StatusOK, "GET", "/endpoints/"+r.endpoint+"/health", "")
	require.Equal(t, "endpoint_paused", health["explanation"].(map[string]any)["code"])
	require.Contains(t, health["summary"], "Paused by hand: nothing is sent; 1 held until it is resumed;")

	status, _ := call(t, "DELETE", r.base+"/endpoints/"+r.endpoint, "")
	require.Equal(t, http.StatusNoContent, status)
	_, got = r.explained(t, &step)
	require.Equal(t, "cancelling", got["code"])

	// An event that comes now matches nothing, because the endpoint is gone.
	event := r.ok(t, http.StatusAccepted, "POST", "/events", `{"type":"order.paid","payload":{}}`)
	shown := r.ok(t, http.StatusOK, "GET", "/events/"+event["id"].(string), "")
	require.Equal(t, "no_matching_endpoint", shown["explanation"].(map[string]any)["code"])
	require.Contains(t, shown["summary"], "the tenant has no endpoint; "+r.endpoint+" (shop.example) was deleted before")
	listed := r.ok(t, http.StatusOK, "GET", "/events", "")["data"].([]any)
	require.Equal(t, shown["summary"], listed[0].(map[string]any)["summary"])
	require.NotContains(t, listed[1], "summary", "the other one has a delivery")
}

// The health names the last failure on record, although no process remembers it.
func TestHealthNamesTheLastFailureOnRecord(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	path := "/endpoints/" + r.endpoint + "/health"
	require.Equal(t, "Active; no failure on record; nothing waits.", r.ok(t, http.StatusOK, "GET", path, "")["summary"])
	failed := func(state webhook.State, reason retry.Reason, ago time.Duration) {
		step := r.posted(t)
		step.State, step.Attempts, step.RunAttempts = state, 1, 1
		if state == webhook.StateRetrying {
			step.DueAt = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		}
		step.Attempt = &webhook.Attempt{
			Number: 1, Run: 1, StartedAt: time.Now().Add(-ago).UTC().Truncate(time.Microsecond),
			Outcome: retry.Outcome{Decision: retry.Retry, Reason: reason}, Error: string(reason) + ": the certificate is for another host",
		}
		_, err := r.store.Deliveries.RecordStep(t.Context(), step)
		require.NoError(t, err)
	}
	failed(webhook.StateDeadLettered, retry.ReasonConnectRefused, time.Hour)
	require.Contains(t, r.ok(t, http.StatusOK, "GET", path, "")["summary"], "Active; the last failure on record is a refused connection at ")
	failed(webhook.StateRetrying, retry.ReasonTLSInvalid, time.Minute)
	failed(webhook.StateDelivered, retry.ReasonDelivered, 0)
	health := r.ok(t, http.StatusOK, "GET", path, "")
	require.Contains(t, health["summary"], "Active; the last failure on record is a TLS error at ")
	require.Contains(t, health["summary"], "; 1 waiting to be sent again in 60 min;")
	require.Contains(t, health["explanation"].(map[string]any)["cause"], "no secure connection to the receiver at shop.example could be made. "+
		"The error was: the certificate is for another host.")
}
