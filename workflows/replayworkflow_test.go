package workflows_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

func TestReplayIsPaced(t *testing.T) {
	t.Parallel()
	for rate, want := range map[int][]int{
		1:    {0, 60, 120},
		30:   {0, 2, 4, 6, 8},
		60:   {0, 1, 2, 3, 4},
		120:  {0, 1, 1, 2, 2, 3, 3},
		1000: append(append([]int{0}, repeated(1, 16)...), repeated(2, 17)...),
	} {
		t.Run(strconv.Itoa(rate), func(t *testing.T) {
			t.Parallel()
			b := setupReplay(t, 1000)
			r := b.replayOf(t, len(want), webhook.Replay{Asked: rate})
			r.run()
			done := r.ends(webhook.ReplayCompleted, "")
			require.Equal(t, want, r.seconds())
			require.Equal(t, r.set, r.released, "in order, nothing twice, nothing left out")
			require.EqualValues(t, len(want), *done.Total)
			require.Equal(t, []int{len(want), 0, len(want), 0}, []int{int(done.Released), int(done.Skipped), int(done.Delivered), int(done.Failed)})
			require.Equal(t, []int{rate}, r.rates)
			require.Less(t, r.now.Sub(r.at[len(r.at)-1]), 3*time.Second, "it ends soon after the last outcome")
			require.Equal(t, webhook.ReplayCompleted, r.status().State)
		})
	}
}

func repeated(n, times int) (all []int) {
	for range times {
		all = append(all, n)
	}
	return all
}

func TestReplayOfNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, "default").replayOf(t, 0, webhook.Replay{Ramp: true})
	r.run()
	require.Zero(t, *r.ends(webhook.ReplayCompleted, "").Total)
}

// It doubles each minute while deliveries succeed, and never goes above what the endpoint takes.
func TestReplayRampsUp(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 5)
	r := b.replayOf(t, 1000, webhook.Replay{Asked: 60, Ramp: true})
	r.run()
	r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, []int{60, 120, 240, 300}, r.rates)
	require.Equal(t, r.set, r.released)
	minutes := r.perMinute()
	for i, most := range []int{61, 125, 245} { // the outcomes of a minute are counted some seconds after it
		require.InDelta(t, most, minutes[i], 20, "%v", minutes)
	}
	for _, n := range minutes {
		require.LessOrEqual(t, n, 305)
	}
}

func TestReplayWithoutARampKeepsItsRate(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 150, webhook.Replay{Asked: 60})
	r.answer(func(int) bool { return false })
	r.run()
	require.EqualValues(t, 150, r.ends(webhook.ReplayCompleted, "").Failed)
	require.Equal(t, []int{60}, r.rates)
}

// It halves while too many fail, and goes up again when they do not.
func TestReplayRampsDown(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 600, webhook.Replay{Asked: 120, Ramp: true})
	r.answer(func(n int) bool { return n > 190 || n%3 != 0 })
	r.run()
	r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, []int{120, 60, 30}, r.rates[:3])
	require.Equal(t, []int{60, 120}, r.rates[3:5])
	require.Equal(t, r.set, r.released)
}

// A replay pauses itself and says why. A resume continues it where it was.
func TestReplayPausesItself(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 100, webhook.Replay{Asked: 240, Ramp: true})
	r.answer(func(n int) bool { return n <= 2 || n > 50 })
	var at int
	r.run(after(time.Hour, func(env environment) {
		now := r.read()
		require.Equal(t, webhook.ReplayPaused, now.State)
		require.Regexp(t, `^paused: \d\d of \d\d first attempts failed$`, now.StateReason)
		require.Contains(t, r.details(), "- reason: paused: ")
		require.Contains(t, r.details(), "**paused**")
		at = len(r.released)
		require.Less(t, at, 50, "long before the minute was over")
		r.answer(func(int) bool { return true })
		env.SignalWorkflow(workflows.SignalResume, nil)
	}))
	r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, []webhook.ReplayState{webhook.ReplayRunning, webhook.ReplayPaused, webhook.ReplayRunning, webhook.ReplayCompleted}, r.states)
	require.Equal(t, r.set, r.released)
	require.WithinDuration(t, r.at[at-1].Add(time.Hour), r.at[at], 2*time.Minute)
}

// When the last one is released there is nothing left to pause.
func TestReplayOfWhichAllIsReleasedDoesNotPause(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 40, webhook.Replay{Asked: 6000, Ramp: true})
	r.answer(func(int) bool { return false })
	r.run()
	require.EqualValues(t, 40, r.ends(webhook.ReplayCompleted, "").Failed)
	require.Equal(t, []webhook.ReplayState{webhook.ReplayRunning, webhook.ReplayCompleted}, r.states)
}

// Every command, by the API, by the API with its signal lost, and by hand.
func TestReplayCommands(t *testing.T) {
	t.Parallel()
	type way func(r *replaying, c webhook.ReplayCommand, byHand any) func(environment)
	ways := map[string]way{
		"api": func(r *replaying, c webhook.ReplayCommand, _ any) func(environment) {
			return func(env environment) {
				name, asked := r.command(c)
				env.SignalWorkflow(name, asked)
			}
		},
		"api, twice": func(r *replaying, c webhook.ReplayCommand, _ any) func(environment) {
			return func(env environment) {
				name, asked := r.command(c)
				env.SignalWorkflow(name, asked)
				env.SignalWorkflow(name, asked)
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(name, asked) }, time.Minute)
			}
		},
		"api, repeated by the relay": func(r *replaying, c webhook.ReplayCommand, _ any) func(environment) {
			return func(env environment) {
				name, asked := r.command(c)
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(name, asked) }, 15*time.Second)
			}
		},
		"by hand": func(_ *replaying, c webhook.ReplayCommand, byHand any) func(environment) {
			return func(env environment) { env.SignalWorkflow(signalOf(c), byHand) }
		},
	}
	pause, resume := webhook.ReplayCommand{Action: webhook.ReplayPause}, webhook.ReplayCommand{Action: webhook.ReplayResume}
	cancel, rate := webhook.ReplayCommand{Action: webhook.ReplayCancel}, webhook.ReplayCommand{Rate: 600}
	for name, do := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("pause and resume", func(t *testing.T) {
				t.Parallel()
				r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
				r.run(
					after(10*time.Second, do(r, pause, nil)),
					after(time.Hour, func(env environment) {
						require.Equal(t, "paused by a person", r.read().StateReason)
						require.InDelta(t, 11, len(r.released), 2)
						do(r, resume, nil)(env)
					}))
				r.ends(webhook.ReplayCompleted, "")
				require.Equal(t, r.set, r.released)
			})
			t.Run("cancel", func(t *testing.T) {
				t.Parallel()
				r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
				r.run(after(10*time.Second, do(r, cancel, nil)))
				r.ends(webhook.ReplayCancelled, "cancelled by a person")
				require.InDelta(t, 11, len(r.released), 2)
			})
			t.Run("set-rate", func(t *testing.T) {
				t.Parallel()
				r := setupReplay(t, 1000).replayOf(t, 60, webhook.Replay{Asked: 1})
				r.run(after(90*time.Second, do(r, rate, workflows.ReplaySignal{PerMinute: 600})))
				require.Equal(t, 600, r.ends(webhook.ReplayCompleted, "").Asked)
				require.Equal(t, []int{1, 600}, r.rates)
				require.Less(t, r.at[59].Sub(r.at[2]), 20*time.Second)
			})
		})
	}
}

// What is typed into the Web UI means what it says, and nothing is no mistake.
func TestReplaySignalsByHand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, signal  string
		input         any
		state         webhook.ReplayState
		reason        string
		asked, inEnds int
	}{
		{"cancel with a text", workflows.SignalCancel, "wrong set", webhook.ReplayCancelled, "wrong set", 60, 60},
		{"cancel with a reason", workflows.SignalCancel, workflows.ReplaySignal{Reason: "wrong set"}, webhook.ReplayCancelled, "wrong set", 60, 60},
		{"cancel with a number", workflows.SignalCancel, 17, webhook.ReplayCancelled, "cancelled by a person", 60, 60},
		{"cancel with what PostgreSQL refuses", workflows.SignalCancel, "a\x00b", webhook.ReplayCancelled, "ab", 60, 60},
		{"set-rate with a number", workflows.SignalSetRate, 600, webhook.ReplayCompleted, "", 600, 600},
		{"set-rate with too much", workflows.SignalSetRate, 1e12, webhook.ReplayCompleted, "", webhook.MaxReplayRate, 6000},
		{"set-rate with less than nothing", workflows.SignalSetRate, -5, webhook.ReplayCompleted, "", 60, 60},
		{"set-rate without a rate", workflows.SignalSetRate, nil, webhook.ReplayCompleted, "", 60, 60},
		{"resume what runs", workflows.SignalResume, nil, webhook.ReplayCompleted, "", 60, 60},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := setupReplay(t, 100).replayOf(t, 30, webhook.Replay{Asked: 60})
			r.run(after(10*time.Second, signal(test.signal, test.input)))
			done := r.ends(test.state, test.reason)
			require.Equal(t, []int{test.asked, test.inEnds}, []int{done.Asked, done.Rate})
		})
	}
}

func TestReplayIsCancelledWithItsWorkflow(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.run(after(10*time.Second, environment.CancelWorkflow))
	r.ends(webhook.ReplayCancelled, "the workflow was cancelled")
	require.InDelta(t, 11, len(r.released), 2)
}

// R5: also while the store is away: it is carried out when it is back.
func TestReplayIsCancelledWhileTheRecordIsAway(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.run(after(10*time.Second, func(env environment) {
		fail := failing(12)
		r.let(&r.fail, func(string) error { return fail() })
		env.CancelWorkflow()
	}))
	r.ends(webhook.ReplayCancelled, "the workflow was cancelled")
	require.Greater(t, r.now.Sub(r.at[0]), 5*time.Minute)
}

// The history stays bounded: nothing is lost when it continues as a new one.
func TestReplayContinuesAsItself(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 300, webhook.Replay{Asked: 60, Ramp: true})
	suggest := after(20*time.Second, func(env environment) { env.SetContinueAsNewSuggested(true) })
	for r.run(suggest); !r.over; r.run(suggest) {
		require.NotNil(t, r.input.Status)
		require.Less(t, r.runs, 20)
	}
	r.ends(webhook.ReplayCompleted, "")
	require.Greater(t, r.runs, 5)
	require.Equal(t, r.set, r.released)
	require.Equal(t, []int{60, 120}, r.rates[:2], "the ramp goes on over the runs")
}

// A command that comes just before continue-as-new is handled in the next run.
func TestReplayKeepsCommandsOverRuns(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.run(after(10*time.Second, func(env environment) {
		fail := failing(1)
		r.let(&r.fail, func(string) error { env.SetContinueAsNewSuggested(true); return fail() })
		env.SignalWorkflow(workflows.SignalCancel, "enough")
	}))
	require.Equal(t, webhook.ReplayCancel, r.input.ByHand.Action)
	r.run()
	r.ends(webhook.ReplayCancelled, "enough")
}

// R5: a command that comes after the result of a batch was lost finds a stored status ahead of the workflow's, and is handled after it.
func TestReplayIsCancelledBehindALostAnswer(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.run(after(10*time.Second, func(env environment) {
		lost := failing(1)
		r.let(&r.lose, func(what string) error {
			if what != "release" {
				return nil
			}
			err := lost()
			if err != nil {
				env.SignalWorkflow(workflows.SignalCancel, "enough")
			}
			return err
		})
	}))
	done := r.ends(webhook.ReplayCancelled, "enough")
	require.EqualValues(t, len(r.released), done.Released)
	require.InDelta(t, 12, len(r.released), 2)
}

// The store is away for a while, before and after a call is carried out.
func TestReplayWhileTheRecordIsAway(t *testing.T) {
	t.Parallel()
	for name, interfere := range map[string]func(r *replaying, fail func(string) error){
		"nothing is carried out":      func(r *replaying, fail func(string) error) { r.let(&r.fail, fail) },
		"carried out, not answered":   func(r *replaying, fail func(string) error) { r.let(&r.lose, fail) },
		"every second call fails":     func(r *replaying, _ func(string) error) { r.let(&r.fail, everySecond()) },
		"every second answer is gone": func(r *replaying, _ func(string) error) { r.let(&r.lose, everySecond()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupReplay(t, 1000).replayOf(t, 60, webhook.Replay{Asked: 60, Ramp: true})
			fail := failing(8)
			r.run(after(20*time.Second, func(environment) { interfere(r, func(string) error { return fail() }) }),
				after(40*time.Second, func(environment) {
					if name == "nothing is carried out" {
						require.Contains(t, r.status().LastError, errAway.Error())
						require.Contains(t, r.details(), "- internal fault: ")
					}
				}))
			done := r.ends(webhook.ReplayCompleted, "")
			require.Equal(t, r.set, r.released, "nothing twice, nothing left out")
			require.Equal(t, []int64{60, 60, 0}, []int64{done.Released, done.Delivered, done.Failed})
		})
	}
}

func everySecond() func(string) error {
	n := 0
	return func(string) error {
		n++
		if n%2 == 0 {
			return errAway
		}
		return nil
	}
}

// The set is fixed when the replay is made.
func TestReplayOfASetThatChanges(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 1000)
	r := b.replayOf(t, 60, webhook.Replay{Asked: 60})
	gone, replayed := r.set[40], r.set[41]
	r.run(after(10*time.Second, func(environment) {
		late := b.seed(t, 5)
		b.exec(t, `update deliveries set completed_at = now() + interval '1 second' where id = any($1)`, late)
		b.exec(t, `update deliveries set state = 6 where id = $1`, gone)
		b.exec(t, `update deliveries set state = 3, run = 2 where id = $1`, replayed)
	}))
	done := r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, []int64{58, 2, 60}, []int64{done.Released, done.Skipped, *done.Total})
	require.Equal(t, append(append([]webhook.DeliveryID(nil), r.set[:40]...), r.set[42:]...), r.released)
}

// It ends when each has its first outcome, however long that takes; what waits for
// long is looked at seldom.
func TestReplayWaitsForEachFirstOutcome(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 3, webhook.Replay{Asked: 600})
	r.holds = true
	counts := 0
	r.let(&r.fail, func(what string) error {
		if what == "count" {
			counts++
		}
		return nil
	})
	r.run(after(24*time.Hour, func(environment) {
		require.Equal(t, webhook.ReplayRunning, r.read().State)
		require.Contains(t, r.details(), "3 of 3 released")
		require.Contains(t, r.details(), "0 delivered, 0 failed, 3 awaited")
		require.Less(t, counts, 1000, "once or twice in 5 min; every 5 s were 17,280")
		r.b.exec(t, `delete from outbox`)
		r.b.exec(t, `update deliveries set state = 5 where id = any($1)`, r.set)
	}))
	require.EqualValues(t, 3, r.ends(webhook.ReplayCompleted, "").Failed)
	require.Less(t, r.now.Sub(r.at[0]), 24*time.Hour+10*time.Minute)
}

// A replay whose tenant was deleted has nothing to do any more.
func TestReplayThatIsGone(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.run(after(10*time.Second, func(environment) { r.b.exec(t, `delete from replays`) }))
	require.True(t, r.over)
	require.InDelta(t, 11, len(r.released), 2)
}

// A workflow that was terminated is started again when that is noticed, and waits for a resume.
func TestReplayWhoseWorkflowWasLost(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 1000).replayOf(t, 30, webhook.Replay{Asked: 60})
	r.input.Lost = true
	r.run(after(time.Hour, func(env environment) {
		require.Equal(t, webhook.ReplayPaused, r.read().State)
		require.Contains(t, r.read().StateReason, "was ended from outside")
		require.Empty(t, r.released)
		name, asked := r.command(webhook.ReplayCommand{Action: webhook.ReplayResume})
		env.SignalWorkflow(name, asked)
	}))
	r.ends(webhook.ReplayCompleted, "")
	require.Equal(t, r.set, r.released)
}

// Whatever is done to it and whenever, it ends, nothing is released twice, and unless
// it was cancelled nothing is left out.
func TestReplayProperties(t *testing.T) {
	t.Parallel()
	b := setupReplay(t, 100)
	acts := map[string]func(r *replaying, env environment){
		"pause by hand":    func(_ *replaying, env environment) { env.SignalWorkflow(workflows.SignalPause, nil) },
		"resume by hand":   func(_ *replaying, env environment) { env.SignalWorkflow(workflows.SignalResume, nil) },
		"set-rate by hand": func(_ *replaying, env environment) { env.SignalWorkflow(workflows.SignalSetRate, 300) },
		"cancel by hand":   func(_ *replaying, env environment) { env.SignalWorkflow(workflows.SignalCancel, nil) },
		"cancel workflow":  func(_ *replaying, env environment) { env.CancelWorkflow() },
		"continue as new":  func(_ *replaying, env environment) { env.SetContinueAsNewSuggested(true) },
		"store is away": func(r *replaying, _ environment) {
			fail := failing(3)
			r.let(&r.fail, func(string) error { return fail() })
		},
		"answers get lost": func(r *replaying, _ environment) {
			fail := failing(3)
			r.let(&r.lose, func(string) error { return fail() })
		},
		"receiver breaks":   func(r *replaying, _ environment) { r.answer(func(n int) bool { return n%3 == 0 }) },
		"receiver is fixed": func(r *replaying, _ environment) { r.answer(func(int) bool { return true }) },
	}
	for action, name := range map[webhook.ReplayAction]string{webhook.ReplayPause: "pause", webhook.ReplayResume: "resume", webhook.ReplayCancel: "cancel"} {
		acts[name] = func(r *replaying, env environment) {
			if name, asked, taken := r.tryCommand(webhook.ReplayCommand{Action: action}); taken {
				env.SignalWorkflow(name, asked)
			}
		}
	}
	names := slices.Sorted(maps.Keys(acts))
	rapid.Check(t, func(t *rapid.T) {
		b.exec(t, `delete from deliveries`) // what the one before has left
		r := b.replayOf(t, rapid.IntRange(0, 60).Draw(t, "dead letters"), webhook.Replay{
			Asked: rapid.SampledFrom([]int{5, 60, 600}).Draw(t, "rate"), Ramp: rapid.Bool().Draw(t, "ramp"),
		})
		for !r.over {
			require.Less(t, r.runs, 60, "it never ends")
			var scripts []func(environment)
			if r.runs < 4 {
				for range rapid.IntRange(0, 5).Draw(t, "acts") {
					name := rapid.SampledFrom(names).Draw(t, "act")
					at := time.Duration(rapid.IntRange(0, 90_000).Draw(t, "at")) * time.Millisecond
					scripts = append(scripts, after(at, func(env environment) { acts[name](r, env) }))
				}
			}
			for at := time.Hour; at < 20*time.Hour; at += time.Hour { // the relay checks it
				scripts = append(scripts, after(at, func(env environment) {
					r.answer(func(int) bool { return true })
					env.SignalWorkflow(workflows.SignalResume, nil)
				}))
			}
			r.run(scripts...)
		}
		done := r.read()
		require.False(t, done.State.Open())
		require.EqualValues(t, len(r.released), done.Released)
		require.True(t, slices.Equal(r.set[:len(r.released)], r.released), "in order, nothing twice")
		if done.State == webhook.ReplayCompleted {
			require.Len(t, r.released, len(r.set), "nothing left out")
			require.Zero(t, done.Waiting())
		}
		for _, rate := range r.rates {
			require.LessOrEqual(t, rate, 6000)
		}
	})
}
