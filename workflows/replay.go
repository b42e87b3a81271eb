package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// ReplayInput is a replay to be made, or to be continued. Everything about it is in the store;
// beyond the id there is only what has happened since the last read.
type ReplayInput struct {
	ReplayID webhook.ReplayID `json:"replay_id"`
	Summary  string           `json:"summary,omitempty"` // ReplaySummary, for the details
	// Lost: the replay runs by the store, but its workflow was terminated.
	Lost bool `json:"lost,omitempty"`

	Status   *webhook.ReplayStatus `json:"status,omitempty"`  // nil: not known yet
	Next     time.Time             `json:"next,omitzero"`     // when the next release is due
	Tick     time.Time             `json:"tick,omitzero"`     // of the last release
	CountAt  time.Time             `json:"count_at,omitzero"` // when to look for outcomes; zero: none is awaited
	Window   ReplayWindow          `json:"window,omitzero"`
	ByHand   ReplayByHand          `json:"by_hand,omitzero"`
	Look     bool                  `json:"look,omitempty"`      // the store has a command
	PauseFor string                `json:"pause_for,omitempty"` // why it is to pause by itself
	ChangeTo int                   `json:"change_to,omitempty"` // the rate that it is to go on at by itself; 0: as it is
	Refused  []Refusal             `json:"refused,omitempty"`   // signals of earlier runs that were ignored
}

// ReplayWindow is since when first outcomes are gathered for the ramp, and how many
// there were before.
type ReplayWindow struct {
	Since     time.Time `json:"since,omitzero"`
	Delivered int64     `json:"delivered,omitempty"`
	Failed    int64     `json:"failed,omitempty"`
}

// ReplayByHand is a command that was sent to the workflow by hand and is not stored yet.
type ReplayByHand struct {
	Action  webhook.ReplayAction `json:"action,omitempty"`
	Reason  string               `json:"reason,omitempty"`
	SetRate bool                 `json:"set_rate,omitempty"`
	Rate    int                  `json:"rate,omitempty"` // 0: the last requested one
}

// ReplayStatus is the answer to QueryStatus.
type ReplayStatus struct {
	webhook.ReplayStatus

	ReplayID  webhook.ReplayID `json:"replay_id"`
	LastError string           `json:"last_error,omitempty"` // the internal fault that the replay waits for
}

const (
	// countEvery is how often first outcomes are looked for, and countLast how soon after the last batch: a small replay is over then.
	countEvery = 5 * time.Second
	countLast  = 1500 * time.Millisecond
	// behindPause is how long a replay pauses while deliveries wait for their start.
	behindPause = 5 * time.Second
)

const (
	reasonPaused    = "paused by a person"
	reasonCancelled = "cancelled by a person"
	reasonLost      = "its workflow was ended from outside; resume goes on with it"
)

// ReplayWorkflow sends a set of deliveries again, at a rate. It releases them in the store, a batch a
// second, and each is then started. It counts the outcomes of their first attempts, and ends when all
// have one, or when it is cancelled.
func ReplayWorkflow(ctx workflow.Context, in ReplayInput) error {
	r := newReplay(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, r.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return r.run(ctx)
}

// replay is the state of a ReplayWorkflow.
type replay struct {
	in      ReplayInput
	st      webhook.ReplayStatus
	signals replaySignals
	refused refusals // signals that were ignored
	tenant  string   // "" if not known
	known   bool     // st is the store's
	gone    bool     // there is no such replay any more

	faults    int       // internal faults in a row
	after     time.Time // there is no other try before this time
	lastError string    // of the last fault
}

func newReplay(ctx workflow.Context, in ReplayInput) *replay {
	r := &replay{in: in, signals: newReplaySignals(ctx), refused: in.Refused}
	r.tenant, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(temporal.NewSearchAttributeKeyKeyword(AttributeTenantID))
	if in.Status != nil {
		r.st, r.known = *in.Status, true
	}
	return r
}

func (r *replay) status() (ReplayStatus, error) {
	return ReplayStatus{ReplayStatus: r.st, ReplayID: r.in.ReplayID, LastError: r.lastError}, nil
}

func (r *replay) run(ctx workflow.Context) error {
	for {
		r.receiveSignals(ctx)
		r.describe(ctx)
		now := workflow.Now(ctx)
		switch {
		case r.refused.audit(ctx, r.tenant, r.in.ReplayID.String(), webhook.DeliveryID{}):
		case r.gone:
			workflow.GetLogger(ctx).Warn("a replay ends that is no longer in the store", "replay", r.in.ReplayID.String())
			return nil
		case r.known && !r.st.State.Open():
			return nil // nothing has blocked since the signals were received: none is lost
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return r.continueAsNew(ctx)
		case now.Before(r.after):
			r.wait(ctx, r.after)
		case r.in.Look || !r.known:
			r.count(ctx)
		case r.isToChange():
			r.step(ctx)
		case r.st.State == webhook.ReplayQueued:
			return nil // when it may run, it is started again
		case r.st.Exhausted && r.st.Waiting() == 0:
			r.complete(ctx)
		case !r.in.CountAt.IsZero() && !now.Before(r.in.CountAt):
			r.count(ctx)
		case r.releases() && !now.Before(r.releaseAt()):
			r.release(ctx)
		default:
			r.wait(ctx, r.nextAt())
		}
	}
}

// releases reports whether there is something left to be released.
func (r *replay) releases() bool { return r.st.State == webhook.ReplayRunning && !r.st.Exhausted }

// releaseAt is when to release next: exactly when it is due at low rates, and once a
// second with what is due at high ones.
func (r *replay) releaseAt() time.Time {
	soonest := r.in.Tick.Add(releaseEvery)
	if r.st.Behind {
		soonest = r.in.Tick.Add(behindPause)
	}
	if r.in.Next.After(soonest) {
		return r.in.Next
	}
	return soonest
}

// nextAt is when there is something to do by itself; zero: never.
func (r *replay) nextAt() time.Time {
	at := r.in.CountAt
	if r.releases() && (at.IsZero() || r.releaseAt().Before(at)) {
		at = r.releaseAt()
	}
	return at
}

// wait sleeps until a time, or, with a zero one, until a signal comes.
func (r *replay) wait(ctx workflow.Context, until time.Time) {
	timerCtx, stop := workflow.NewDisconnectedContext(ctx)
	timerCtx, end := workflow.WithCancel(timerCtx)
	defer stop()
	defer end()
	var timer workflow.Future
	if !until.IsZero() {
		timer = workflow.NewTimerWithOptions(timerCtx, until.Sub(workflow.Now(ctx)), workflow.TimerOptions{Summary: r.waitSummary()})
	}
	await(ctx, timer)
}

// describe sets the details.
func (r *replay) describe(ctx workflow.Context) {
	if r.known {
		workflow.SetCurrentDetails(ctx, replayDetails(r.in.Summary, &r.st, r.lastError)+r.refused.details())
	}
}

func (r *replay) waitSummary() string {
	switch {
	case r.faults > 0:
		return fmt.Sprintf("internal fault, next try (%d)", r.faults)
	case r.releases():
		return fmt.Sprintf("%d released, %d per minute", r.st.Released, r.st.Rate)
	default:
		return fmt.Sprintf("%d first attempts awaited", r.st.Waiting())
	}
}

// release releases what is due.
func (r *replay) release(ctx workflow.Context) {
	now := workflow.Now(ctx)
	batch := activities.Batch{ID: r.in.ReplayID, Seq: r.st.Seq + 1, Limit: due(r.in.Next, now, r.st.Rate)}
	if r.store(ctx, "release", acts.Replays.ReleaseReplay, batch) {
		r.in.Tick = now
	}
}

// count reads the store, and first outcomes with it.
func (r *replay) count(ctx workflow.Context) {
	first := !r.known
	if !r.store(ctx, "count first outcomes", acts.Replays.CountReplay, r.in.ReplayID) {
		return
	}
	now := workflow.Now(ctx)
	if r.in.Look = false; first {
		r.begin(now)
	}
	switch at := r.st.CheckAt; {
	case at.IsZero():
		r.in.CountAt = time.Time{}
	case !at.After(now): // there are more than one look takes, or the store's clock is behind
		r.in.CountAt = now.Add(clockSlack)
	default:
		r.in.CountAt = now.Add(countEvery)
		if at.After(r.in.CountAt) {
			r.in.CountAt = at
		}
	}
	r.judge(now)
}

// begin is what the first look leads to.
func (r *replay) begin(now time.Time) {
	r.in.Next = now
	r.gather(now)
	if r.in.Lost && r.st.State == webhook.ReplayRunning && !r.st.Command.Pending() {
		r.in.PauseFor = reasonLost
	}
}

// isToChange reports whether the replay's state or rate is to change.
func (r *replay) isToChange() bool {
	return r.st.Command.Pending() || r.in.ByHand != ReplayByHand{} || r.in.PauseFor != "" || r.in.ChangeTo != 0
}

// step stores the change.
func (r *replay) step(ctx workflow.Context) {
	before := r.st
	step := r.next()
	if r.in.ChangeTo != 0 {
		step.Rate = r.in.ChangeTo
	}
	if r.in.PauseFor != "" && step.State == webhook.ReplayRunning {
		step.State, step.Reason = webhook.ReplayPaused, r.in.PauseFor
	}
	r.apply(&step, r.st.Command.Action, "", r.st.Command.Rate)
	rate := r.in.ByHand.Rate
	if r.in.ByHand.SetRate && rate == 0 {
		rate = step.Asked
	}
	r.apply(&step, r.in.ByHand.Action, r.in.ByHand.Reason, rate)
	if !r.store(ctx, "change", acts.Replays.RecordReplay, step) {
		return
	}
	if r.st.State.Open() && !carriedOut(&step, &r.st) {
		return // the store was at a later step: once more, after that
	}
	r.in.ByHand, r.in.PauseFor, r.in.ChangeTo = ReplayByHand{}, "", 0
	now := workflow.Now(ctx)
	if before.Rate != r.st.Rate || before.State != r.st.State {
		r.gather(now)
		if soon := now.Add(interval(r.st.Rate)); before.State != r.st.State || r.in.Next.After(soon) {
			r.in.Next = soon
		}
	}
}

// apply adds an action and a rate to a step. A resume continues no faster than the requested rate.
func (r *replay) apply(step *webhook.ReplayStep, action webhook.ReplayAction, reason string, rate int) {
	switch action {
	case webhook.ReplayPause:
		if step.State != webhook.ReplayPaused {
			step.State, step.Reason = webhook.ReplayPaused, orElse(reason, reasonPaused)
		}
	case webhook.ReplayResume:
		if step.State != webhook.ReplayRunning {
			step.State = webhook.ReplayQueued // the store lets it run at once, if there is room
		}
		step.Reason, step.Rate = "", min(step.Rate, step.Asked)
	case webhook.ReplayCancel:
		step.State, step.Reason = webhook.ReplayCancelled, orElse(reason, reasonCancelled)
	case webhook.ReplayKeep:
	}
	if rate != 0 {
		step.Asked, step.Rate = rate, min(rate, r.st.Ceiling)
	}
}

// carriedOut reports whether a status is what a step leads to. The number alone does
// not say it: a batch of the same number, whose answer was lost, may have been first.
func carriedOut(step *webhook.ReplayStep, st *webhook.ReplayStatus) bool {
	admitted := step.State == webhook.ReplayQueued && st.State == webhook.ReplayRunning
	return st.Seq == step.Seq && (st.State == step.State || admitted) && st.Reason == step.Reason && st.Rate == step.Rate &&
		(st.Asked == step.Asked || st.Command.Pending()) // another rate was requested since
}

// complete ends the replay.
func (r *replay) complete(ctx workflow.Context) {
	step := r.next()
	step.State, step.Reason = webhook.ReplayCompleted, ""
	r.store(ctx, "complete", acts.Replays.RecordReplay, step)
}

func (r *replay) next() webhook.ReplayStep {
	return webhook.ReplayStep{
		ID: r.in.ReplayID, Seq: r.st.Seq + 1, State: r.st.State, Reason: r.st.Reason, Asked: r.st.Asked, Rate: r.st.Rate, CommandDone: r.st.Command.ID,
	}
}

// continueAsNew continues with an empty history.
func (r *replay) continueAsNew(ctx workflow.Context) error {
	if r.known {
		r.in.Status, r.in.Lost = &r.st, false
	}
	r.in.Refused = r.refused
	return continueAs(ctx, ReplayWorkflow, r.in)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// store runs an activity on the store and syncs with the status that it returns. When it fails, it is
// false, and nothing is tried again before a pause: 1 s doubling to 1 min.
func (r *replay) store(ctx workflow.Context, what string, activity, input any) bool {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	var status webhook.ReplayStatus
	err := workflow.ExecuteLocalActivity(localOptions(disconnected, what), activity, input).Get(disconnected, &status)
	if err == nil {
		r.sync(status, workflow.Now(ctx))
		r.faults, r.after, r.lastError = 0, time.Time{}, ""
		return true
	}
	if r.gone = activities.IsGone(err); r.gone {
		return false
	}
	r.faults++
	r.after = workflow.Now(ctx).Add(min(time.Second<<min(r.faults-1, 6), longestPause))
	r.lastError = message(err)
	workflow.GetLogger(ctx).Warn("a replay cannot go on", "replay", r.in.ReplayID.String(), "tries", r.faults, "error", r.lastError)
	return false
}

// sync updates the state with the store's status. What it has released, even by a batch whose answer
// was lost, is waited for, and counts for the pace.
func (r *replay) sync(status webhook.ReplayStatus, now time.Time) {
	if n := int(status.Released - r.st.Released); r.known && n > 0 {
		r.in.Next = following(r.in.Next, now, r.st.Rate, n)
	}
	if r.in.CountAt.IsZero() && !status.CheckAt.IsZero() {
		r.in.CountAt = now.Add(countEvery)
	}
	if last := now.Add(countLast); status.Exhausted && !r.st.Exhausted && last.Before(r.in.CountAt) {
		r.in.CountAt = last
	}
	r.st, r.known = status, true
}
