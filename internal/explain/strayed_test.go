package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestRedirectsThatStray(t *testing.T) {
	t.Parallel()
	e := shop()
	h := webhook.Health{Endpoint: e, Known: true, Observed: webhook.Observation{
		Delivered: 4, Strayed: webhook.Strayed{To: "https://accounts.example/login", Before: "script.example", At: noon()},
	}}
	got := Endpoint(&h, noon())
	require.Equal(t, EndpointStray, got.Code)
	require.Equal(t,
		"Active, but its redirects lead to https://accounts.example/login instead of script.example, since 12:04 UTC; nothing waits.", got.Summary)
	require.NotEmpty(t, got.Remedy)
	require.Equal(t, ShortCondition{
		ConditionFailing, "its redirects lead to https://accounts.example/login instead of script.example", noon(),
	}, ConditionOf(&h, noon()))

	h.Observed.Strayed.Before = ""
	require.Equal(t, "Active, but its redirects lead to https://accounts.example/login, which looks like a log-in, since 12:04 UTC; nothing waits.",
		Endpoint(&h, noon()).Summary)

	require.Equal(t, "its redirects lead to https://accounts.example/login, which looks like a log-in", ConditionOf(&h, noon()).Cause)

	h.Observed.FailureStreak, h.Observed.LastFailure = 3, "http_503"
	require.Equal(t, EndpointFails, Endpoint(&h, noon()).Code, "a receiver that fails comes first")
}
