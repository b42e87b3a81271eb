package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Only filters with the prefix of operational events match them.
func TestFiltersOfOperationalEvents(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string][2]bool{ // of everpost.endpoint.paused, of order.paid
		"*": {false, true}, "everpost.*": {true, false}, "everpost.endpoint.*": {true, false}, webhook.EventEndpointPaused: {true, false},
		"everpost.delivery.*": {false, false}, webhook.EventEndpointDisabled: {false, false}, "order.*": {false, true}, "everpost": {false, false},
	} {
		require.Equal(t, want[0], webhook.FilterMatches(filter, webhook.EventEndpointPaused), filter)
		require.Equal(t, want[1], webhook.FilterMatches(filter, "order.paid"), filter)
		require.True(t, webhook.ValidFilter(filter))
	}
	require.True(t, webhook.FilterMatches("*", "everpost"), "the prefix ends with a dot")
	require.True(t, webhook.FilterMatches("*", "everposted.x"))
}

func TestTypesOfOperationalEvents(t *testing.T) {
	t.Parallel()
	for _, eventType := range []string{
		webhook.EventEndpointDisabled, webhook.EventEndpointPaused, webhook.EventEndpointResumed, webhook.EventEndpointRecovered, webhook.EventCircuitOpened,
		webhook.EventRetryStorm, webhook.EventDeadLettered, webhook.EventReplayCompleted,
	} {
		require.True(t, webhook.ValidType(eventType), eventType)
		require.True(t, webhook.IsOperational(eventType), eventType)
	}
}

func TestOperationalOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filters []string
		want    bool
	}{
		{nil, false}, {[]string{"*"}, false}, {[]string{"everpost.*"}, true}, {[]string{webhook.EventEndpointPaused, "everpost.delivery.*"}, true},
		{[]string{"everpost.*", "order.*"}, false}, {[]string{"everpost"}, false},
	} {
		e := webhook.Endpoint{EventTypes: c.filters}
		require.Equal(t, c.want, e.OperationalOnly(), c.filters)
	}
}

// The parts of a URL that may be secret are removed.
func TestPlainURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com/a/b":                                 "https://example.com/a/b",
		"https://u:canary@example.com:8443/a%2Fb?c=canary#canary": "https://example.com:8443/a%2Fb",
		"https://example.com":                                     "https://example.com",
		"https://[::1]:9/":                                        "https://[::1]:9/",
		"https://exa mple\x7f?canary":                             "",
		"opaque:canary":                                           "opaque:",
	} {
		require.Equal(t, want, webhook.PlainURL(raw), raw)
		require.NotContains(t, webhook.PlainURL(raw), "canary")
	}
}
