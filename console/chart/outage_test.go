package chart

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

func preset(t *testing.T, name string) retry.Policy {
	t.Helper()
	p, ok := retry.Lookup(name)
	require.True(t, ok)
	return p
}

func TestOutage(t *testing.T) {
	t.Parallel()
	o := SimulateOutage(retry.Default(), 3*time.Hour)
	require.InDelta(t, 1, o.Share, 0, "the default policy survives three hours")
	require.True(t, 3*time.Hour <= o.Earliest && o.Earliest <= o.Usual && o.Usual <= o.Latest)
	require.Len(t, o.Failed, o.Attempts-1)
	require.Zero(t, o.GivenUp)
	require.Contains(t, o.Summary(), "If the receiver is down for 3 h, every delivery arrives, usually ")
	golden(t, "outage-default", o.Draw())

	o = SimulateOutage(preset(t, "fast"), 3*time.Hour)
	require.Zero(t, o.Share, "five attempts within a minute")
	require.Equal(t, 5, o.Attempts)
	require.Contains(t, o.Summary(), "no delivery that is accepted when the outage begins arrives: each is given up after 5 attempts")
	golden(t, "outage-fast", o.Draw())

	// 10 s, 30 s, 2 min, 10 min, 30 min, 2 h, …: without jitter the attempt after 2 h 42 min 40 s is the first after two hours.
	exact := preset(t, "steps-36h")
	exact.Jitter, exact.JitterRatio = retry.JitterNone, 0
	o = SimulateOutage(exact, 2*time.Hour)
	require.Equal(t, 2*time.Hour+42*time.Minute+40*time.Second, o.Usual)
	require.Equal(t, o.Earliest, o.Latest)
	require.Equal(t, 7, o.Attempts)
	require.Equal(t, "If the receiver is down for 2 h, every delivery arrives, usually 42 min 40 s after the receiver is back, with attempt 7.", o.Summary())
}

// A longer outage never delivers more, nothing arrives while the receiver is down, and the same question has the same
// answer.
func TestOutageOfAnyPolicy(t *testing.T) {
	t.Parallel()
	presets := retry.Presets()
	rapid.Check(t, func(t *rapid.T) {
		p := presets[rapid.IntRange(0, len(presets)-1).Draw(t, "preset")].Policy
		p.MaxAttempts = rapid.IntRange(1, 40).Draw(t, "attempts")
		p.GiveUpAfter = time.Duration(rapid.Int64Range(int64(time.Second), int64(100*time.Hour)).Draw(t, "give up"))
		down := time.Duration(rapid.Int64Range(1, int64(120*time.Hour)).Draw(t, "down"))
		o := SimulateOutage(p, down)
		require.Equal(t, o, SimulateOutage(p, down))
		require.LessOrEqual(t, SimulateOutage(p, 2*down).Share, o.Share)
		require.LessOrEqual(t, o.Attempts, p.MaxAttempts)
		if o.Share > 0 {
			require.GreaterOrEqual(t, o.Earliest, down)
			require.LessOrEqual(t, o.Latest, p.GiveUpAfter)
		}
		if o.GivenUp > 0 {
			require.LessOrEqual(t, o.GivenUp, p.GiveUpAfter)
		}
		require.NotEmpty(t, o.Summary())
		requireSound(t, o.Draw())
		requireSound(t, DrawPolicy(p))
	})
}
