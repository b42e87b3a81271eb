package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The breaker alone: results one second apart, each s, f or n for what it tells; p is that of a
// probe, followed by what it tells.
func TestBreakerStates(t *testing.T) {
	t.Parallel()
	signals := map[rune]signal{'s': signalSuccess, 'f': signalFailure, 'n': signalNone}
	for results, want := range map[string]struct {
		state    webhook.CircuitState
		cooldown time.Duration
	}{
		"":           {webhook.CircuitClosed, 0},
		"fff":        {webhook.CircuitClosed, 0},
		"ffff":       {webhook.CircuitOpen, 30 * time.Second},
		"sffsf":      {webhook.CircuitOpen, 30 * time.Second},
		"ssssffs":    {webhook.CircuitClosed, 0},
		"nnnnfff":    {webhook.CircuitClosed, 0},
		"fffs":       {webhook.CircuitClosed, 0},
		"ffffpn":     {webhook.CircuitHalfOpen, 30 * time.Second},
		"ffffpf":     {webhook.CircuitOpen, time.Minute},
		"ffffpfpf":   {webhook.CircuitOpen, 2 * time.Minute},
		"ffffps":     {webhook.CircuitClosed, 30 * time.Second},
		"ffffpsfff":  {webhook.CircuitClosed, 30 * time.Second},
		"ffffpsffff": {webhook.CircuitOpen, time.Minute},
	} {
		b := breaker{state: webhook.CircuitClosed, random: func() float64 { return 0 }}
		b.configure(0, webhook.CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 4, FailureRatio: 0.5, Cooldown: 30 * time.Second})
		now, probe := time.Duration(0), (*activeRequest)(nil)
		for _, what := range results {
			now += time.Second
			if what == 'p' {
				require.False(t, b.probeDue(b.until-1))
				now = b.until
				require.True(t, b.probeDue(now))
				probe = &activeRequest{epoch: b.epoch}
				b.beginProbe(probe)
				require.False(t, b.probeDue(now), "one at a time")
				continue
			}
			f := probe
			if f == nil {
				f = &activeRequest{epoch: b.epoch}
			}
			b.report(now, f, signals[what], "http_500")
			b.report(now, &activeRequest{epoch: b.epoch + 1}, signalFailure, "http_500") // of another epoch
			probe = nil
		}
		require.Equal(t, want.state, b.state, results)
		require.Equal(t, want.cooldown, b.cooldown, results)
	}
}
