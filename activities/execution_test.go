package activities

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// R2, R3: the executions against a model. Whatever happens in whatever order, a key has
// one execution at a time; a recorded outcome that leads on is returned, and the attempt
// not executed again, while it is among the latest; an outcome that is not recorded is
// handed over; and neither kind is kept without bound.
func TestExecutionsModel(t *testing.T) {
	t.Parallel()
	const limit, remembered, keys = 3, 4, 12
	rapid.Check(t, func(t *rapid.T) {
		f := newExecutions(limit, remembered)
		running := map[attemptKey]*execution{}
		lost := map[attemptKey]*webhook.Step{} // the newest that was left unrecorded
		var recent []attemptKey                // recorded, newest last
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				key := attemptKey{run: 1, number: rapid.IntRange(1, keys).Draw(t, "number")}
				exec, isNew, err := f.enter(inputOf(key, key.number-1), time.Time{})
				before, isRunning := running[key]
				switch {
				case isRunning:
					require.Same(t, before, exec)
					require.False(t, isNew)
				case err != nil:
					require.ErrorIs(t, err, errTooMany)
					require.Len(t, running, limit)
				case isNew:
					require.Less(t, len(running), limit)
					require.NotContains(t, recent[max(0, len(recent)-remembered):], key, "remembered, and executed again")
					if exec.unrecorded != nil {
						require.Same(t, lost[key], exec.unrecorded)
					}
					running[key] = exec
				default:
					require.NoError(t, exec.err)
					require.Equal(t, key.number, exec.result.Seq)
				}
			},
			"enter eagerly": func(t *rapid.T) {
				key := attemptKey{run: 1, number: rapid.IntRange(1, keys).Draw(t, "number")}
				known := f.byKey[key] != nil
				exec := f.enterEager(inputOf(key, key.number-1), time.Time{})
				require.Equal(t, !known && len(running) < limit, exec != nil)
				if exec != nil {
					require.Nil(t, exec.unrecorded)
					running[key] = exec
				}
			},
			"end": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nothing is under way")
				}
				key := rapid.SampledFrom(keysOf(running)).Draw(t, "key")
				exec := running[key]
				delete(running, key)
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					exec.result.Run, exec.result.Seq, exec.unrecorded = 1, key.number, nil
					recent = append(recent, key)
				case 1: // busy
				case 2:
					exec.err = errors.New("our fault")
				case 3:
					exec.err = errors.New("not recorded")
					exec.unrecorded = &webhook.Step{}
					lost[key] = exec.unrecorded
				}
				f.end(key, inputOf(key, key.number-1).Progress, exec)
				again, isNew, err := f.enter(inputOf(key, key.number), time.Time{})
				require.NoError(t, err)
				require.True(t, isNew, "what does not lead on is not remembered")
				require.Same(t, exec.unrecorded, again.unrecorded, "the newest that is left is never the one that goes")
				again.unrecorded, again.result, again.err = exec.unrecorded, exec.result, exec.err
				f.end(key, inputOf(key, key.number-1).Progress, again)
				if exec.result.Seq > 0 {
					recent = append(recent, key)
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(f.byKey), len(running)+2*remembered)
				require.Equal(t, len(running), f.running)
				require.LessOrEqual(t, f.unrecorded.Len(), remembered)
			},
		})
		for key, exec := range running {
			f.end(key, inputOf(key, key.number-1).Progress, exec)
		}
		f.close()
		_, _, err := f.enter(inputOf(attemptKey{run: 1, number: keys + 1}, 0), time.Time{})
		require.ErrorIs(t, err, errStopping)
		require.Nil(t, f.enterEager(inputOf(attemptKey{run: 1, number: keys + 1}, 0), time.Time{}))
	})
}

// A tenant that is alone has all places. Another one has some beside them, and then those that become free, until both have the same number.
func TestTenantsShareExecutions(t *testing.T) {
	t.Parallel()
	const limit = 60
	f := newExecutions(limit, 1)
	running := map[string][]attemptKey{}
	fill := func(tenant string) {
		for n := 1; ; n++ {
			ref := webhook.Ref{TenantID: tenant, DeliveryID: webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())}
			key := attemptKey{delivery: ref, run: 1, number: 1}
			_, _, err := f.enter(inputOf(key, 0), time.Time{})
			if err != nil {
				require.ErrorIs(t, err, errTooMany)
				require.Nil(t, f.enterEager(inputOf(key, 0), time.Time{}))
				return
			}
			running[tenant] = append(running[tenant], key)
		}
	}
	fill("large")
	require.Len(t, running["large"], limit)
	fill("small")
	require.NotEmpty(t, running["small"], "it does not wait for the other")
	end := func(tenant string) {
		key := running[tenant][0]
		running[tenant] = running[tenant][1:]
		exec := f.byKey[key]
		exec.err = errors.New("it has ended")
		f.end(key, webhook.Progress{}, exec)
	}
	for range limit / 2 {
		end("large")
		fill("large")
		fill("small")
	}
	require.InDelta(t, len(running["large"]), len(running["small"]), 3)
	for len(running["small"]) > 0 {
		end("small")
	}
	fill("large")
	require.Len(t, running["large"], limit, "alone again")
	for len(running["large"]) > 0 {
		end("large")
	}
	require.Zero(t, f.shares.Tenants())
}

// inputOf is the input of an attempt with the key.
func inputOf(key attemptKey, seq int) AttemptInput {
	return AttemptInput{
		Ref: key.delivery, Progress: webhook.Progress{Run: key.run, Seq: seq, RunAttempts: key.number - 1},
	}
}

func keysOf(m map[attemptKey]*execution) []attemptKey {
	var all []attemptKey
	for number := range 20 {
		if key := (attemptKey{run: 1, number: number}); m[key] != nil {
			all = append(all, key)
		}
	}
	return all
}
