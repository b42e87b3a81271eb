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
		state    Circuit
		cooldown time.Duration
	}{
		"":           {CircuitClosed, 0},
		"fff":        {CircuitClosed, 0},
		"ffff":       {CircuitOpen, 30 * time.Second},
		"sffsf":      {CircuitOpen, 30 * time.Second},
		"ssssffs":    {CircuitClosed, 0},
		"nnnnfff":    {CircuitClosed, 0},
		"fffs":       {CircuitClosed, 0},
		"ffffpn":     {CircuitHalfOpen, 30 * time.Second},
		"ffffpf":     {CircuitOpen, time.Minute},
		"ffffpfpf":   {CircuitOpen, 2 * time.Minute},
		"ffffps":     {CircuitClosed, 30 * time.Second},
		"ffffpsfff":  {CircuitClosed, 30 * time.Second},
		"ffffpsffff": {CircuitOpen, time.Minute},
	} {
		b := breaker{random: func() float64 { return 0 }}
		b.configure(0, webhook.CircuitBreaker{Enabled: true, Window: time.Minute, MinRequests: 4, FailureRatio: 0.5, Cooldown: 30 * time.Second})
		now, probe := time.Duration(0), (*flight)(nil)
		for _, what := range results {
			now += time.Second
			if what == 'p' {
				require.False(t, b.probeDue(b.until-1))
				now = b.until
				require.True(t, b.probeDue(now))
				probe = &flight{epoch: b.epoch}
				b.beginProbe(probe)
				require.False(t, b.probeDue(now), "one at a time")
				continue
			}
			f := probe
			if f == nil {
				f = &flight{epoch: b.epoch}
			}
			b.report(now, f, signals[what], "http_500")
			b.report(now, &flight{epoch: b.epoch + 1}, signalFailure, "http_500") // of another epoch
			probe = nil
		}
		require.Equal(t, want.state, b.state, results)
		require.Equal(t, want.cooldown, b.cooldown, results)
	}
}
