package webhook_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestReplayNames(t *testing.T) {
	t.Parallel()
	var sources, states []string
	for _, s := range webhook.ReplaySources() {
		parsed, ok := webhook.ParseReplaySource(s.String())
		require.True(t, ok)
		require.Equal(t, s, parsed)
		sources = append(sources, s.String())
	}
	require.Equal(t, []string{"dead_letters", "events"}, sources)
	_, ok := webhook.ParseReplaySource("all")
	require.False(t, ok)

	for _, s := range webhook.ReplayStates() {
		states = append(states, s.String())
		require.Equal(t, s != webhook.ReplayCompleted && s != webhook.ReplayCancelled, s.Open())
	}
	require.Equal(t, []string{"queued", "running", "paused", "completed", "cancelled"}, states)
}

// ReplayStatus is part of workflow histories: its JSON form must not change.
func TestReplayStatusAsJSON(t *testing.T) {
	t.Parallel()
	for _, action := range []webhook.ReplayAction{webhook.ReplayKeep, webhook.ReplayPause, webhook.ReplayResume, webhook.ReplayCancel} {
		for _, state := range webhook.ReplayStates() {
			st := webhook.ReplayStatus{State: state, Command: webhook.ReplayCommand{ID: 1, Action: action}}
			text, err := json.Marshal(st)
			require.NoError(t, err)
			var read webhook.ReplayStatus
			require.NoError(t, json.Unmarshal(text, &read))
			require.Equal(t, st, read)
		}
	}
	for _, text := range []string{`{"state":"gone"}`, `{"command":{"action":"stop"}}`} {
		require.Error(t, json.Unmarshal([]byte(text), &webhook.ReplayStatus{}))
	}
}

func TestReplayCommandsPendAndStop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command        webhook.ReplayCommand
		pending, stops bool
	}{
		{webhook.ReplayCommand{ID: 7}, false, false},
		{webhook.ReplayCommand{Rate: 5}, true, false},
		{webhook.ReplayCommand{Action: webhook.ReplayResume}, true, false},
		{webhook.ReplayCommand{Action: webhook.ReplayPause}, true, true},
		{webhook.ReplayCommand{Action: webhook.ReplayCancel, Rate: 5}, true, true},
	} {
		require.Equal(t, test.pending, test.command.Pending(), "%+v", test.command)
		require.Equal(t, test.stops, test.command.Stops(), "%+v", test.command)
	}
}
