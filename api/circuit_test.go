package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestCloseCircuit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, delivery := b.posted(t)
	path := "/v1/tenants/acme/endpoints/" + b.endpoints[0].ID.String() + "/close-circuit"
	for _, state := range []webhook.CircuitState{"", webhook.CircuitClosed, webhook.CircuitHalfOpen} {
		b.seen = []webhook.Observation{{Circuit: state}}
		if state == "" {
			b.seen, state = nil, webhook.CircuitClosed
		}
		a := b.ok(t, http.StatusConflict, "admin", "POST", path, "")
		require.Equal(t, "close-circuit is not possible: the circuit is "+string(state), a.json["detail"])
		require.NotContains(t, a.json, "state")
	}
	b.stale = true
	a := b.ok(t, http.StatusServiceUnavailable, "admin", "POST", path, "")
	require.Equal(t, "the worker that enforces the endpoint's limits did not answer in time", a.json["detail"])
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	require.Empty(t, b.signals)

	b.seen = []webhook.Observation{{Circuit: webhook.CircuitClosed}, {Circuit: webhook.CircuitOpen}} // two workers
	b.refused(t, "admin", "POST", path, `{"x":1}`, "x", "is not a known field")
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, "")
	b.ok(t, http.StatusNotFound, "foreign", "POST", path, "")
	a = b.ok(t, http.StatusOK, "admin", "POST", path, "")
	require.Equal(t, delivery, a.json["probe_delivery_id"])
	require.Equal(t, "active", a.json["state"])
	require.Equal(t, []webhook.PendingCommand{{ID: 8, Command: webhook.CommandRetry}}, b.signals, "its workflow is signalled")

	b.deliveries = nil
	a = b.ok(t, http.StatusOK, "admin", "POST", path, "{}")
	require.Nil(t, a.json["probe_delivery_id"], "none waits")
	require.Len(t, b.signals, 1)
}

// With an open circuit a retry command becomes the probe. While another request is the probe, the
// response says so, and until when.
func TestRetryWhileTheCircuitIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, delivery := b.posted(t)
	d := &b.deliveries[0]
	now := testNow()
	over := now.Add(12 * time.Minute).UTC()
	probed := webhook.Observation{Circuit: webhook.CircuitHalfOpen, ProbeOver: over}
	late := webhook.Observation{Circuit: webhook.CircuitHalfOpen, ProbeOver: now}
	reschedule := func(after time.Duration) string { return `{"at":"` + now.Add(after).Format(time.RFC3339Nano) + `"}` }
	for name, c := range map[string]struct {
		seen          webhook.Observation
		state         webhook.State
		command, body string
		want          int
	}{
		"closed":                              {webhook.Observation{Circuit: webhook.CircuitClosed}, webhook.StateRetrying, "retry", "", http.StatusAccepted},
		"open":                                {webhook.Observation{Circuit: webhook.CircuitOpen}, webhook.StateRetrying, "retry", "", http.StatusAccepted},
		"put off before the first attempt":    {webhook.Observation{Circuit: webhook.CircuitOpen}, webhook.StatePending, "retry", "", http.StatusAccepted},
		"half open, and nothing is under way": {webhook.Observation{Circuit: webhook.CircuitHalfOpen}, webhook.StateRetrying, "retry", "", http.StatusAccepted},
		"a probe that should be over":         {late, webhook.StateRetrying, "retry", "", http.StatusAccepted},
		"a probe is under way":                {probed, webhook.StateRetrying, "retry", "", http.StatusConflict},
		"likewise, put off":                   {probed, webhook.StatePending, "retry", "", http.StatusConflict},
		"likewise, held":                      {probed, webhook.StateHeld, "retry", "", http.StatusConflict},
		"rescheduled to before its end":       {probed, webhook.StateRetrying, "reschedule", reschedule(11 * time.Minute), http.StatusConflict},
		"rescheduled to now":                  {probed, webhook.StateRetrying, "reschedule", reschedule(-time.Hour), http.StatusConflict},
		"rescheduled to after its end":        {probed, webhook.StateRetrying, "reschedule", reschedule(13 * time.Minute), http.StatusAccepted},
		"cancelled":                           {probed, webhook.StateRetrying, "cancel", "", http.StatusAccepted},
	} {
		b.seen, b.signals = []webhook.Observation{c.seen}, nil
		d.State, d.DueAt, d.Reason = c.state, time.Time{}, ""
		if c.state != webhook.StateHeld {
			d.DueAt, d.Reason = testNow().Add(time.Minute), webhook.ReasonCircuitOpen
		}
		a := b.ok(t, c.want, "admin", "POST", "/v1/tenants/acme/deliveries/"+delivery+"/"+c.command, c.body)
		if c.want == http.StatusAccepted {
			require.Len(t, b.signals, 1, name)
			require.NotContains(t, a.json, "waits_for", name)
			continue
		}
		require.Empty(t, b.signals, name)
		require.Equal(t, "circuit_open", a.json["waits_for"], name)
		require.Equal(t, over.Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000000Z"), a.json["until"], name)
		require.Equal(t, c.state.String(), a.json["state"], name)
		require.Equal(t, c.command+" is not possible: the endpoint's circuit is half open, and another request is the probe", a.json["detail"], name)
	}

	// A state that does not accept the command takes precedence.
	b.seen, d.State, d.DueAt = []webhook.Observation{probed}, webhook.StateDelivered, time.Time{}
	a := b.ok(t, http.StatusConflict, "admin", "POST", "/v1/tenants/acme/deliveries/"+delivery+"/retry", "")
	require.Equal(t, "retry is not possible: the delivery is delivered", a.json["detail"])
	require.NotContains(t, a.json, "until")
	b.ok(t, http.StatusNotFound, "foreign", "POST", "/v1/tenants/other/deliveries/"+delivery+"/retry", "")
}
