package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// DeadLetterName is the type of DeadLetterWorkflow in Temporal.
const DeadLetterName = "DeadLetterWorkflow"

// DeadLetterInput is one delivery that was given up, or those of a shared workflow.
type DeadLetterInput struct {
	DeadLetters []*DeadLetter `json:"dead_letters"`
	// Before is how many have left in earlier runs of the workflow.
	Before  int       `json:"before,omitempty"`
	Refused []Refusal `json:"refused,omitempty"` // signals of earlier runs that were ignored
}

// DeadLetter is a delivery that was given up.
type DeadLetter struct {
	DeliveryState

	GivenUpAt time.Time      `json:"given_up_at,omitzero"` // zero: just now
	KeepUntil time.Time      `json:"keep_until,omitzero"`  // zero: not yet known
	Replay    *CommandSignal `json:"replay,omitempty"`     // by hand, and not carried out yet
	Discard   *CommandSignal `json:"discard,omitempty"`    // likewise

	tryAt  time.Time // after a fault, nothing is asked of the store before
	gone   bool      // from the store
	opened OpenedRun // after this one; zero: none that is known
}

// NewDeadLetter returns the dead letter of a delivery, with the command that is pending for it.
// The store says dead_lettered already.
func NewDeadLetter(s DeliveryState) *DeadLetter {
	l := &DeadLetter{DeliveryState: DeliveryState{
		Ref: s.Ref, Progress: s.Progress, CommandDone: s.CommandDone, LastOutcome: s.LastOutcome, Trace: s.Trace, Unconfirmed: s.Unconfirmed,
	}}
	signal := signalOf(s.Command)
	switch s.Command.Command {
	case webhook.CommandReplay:
		l.Replay = &signal
	case webhook.CommandDiscard:
		l.Discard = &signal
	case webhook.CommandNone, webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReschedule:
	}
	return l
}

// DeadLetterWorkflow keeps deliveries that were given up, each until it is discarded, or its retention has passed, or another run of
// it is opened, which has another workflow. Everpost signals a replay to it, once, so that the dead letter leaves at once. If that signal
// is lost, it leaves when the workflow next looks at the store: a day after it began, and each time after twice as long. A look is
// one query for all dead letters.
func DeadLetterWorkflow(ctx workflow.Context, in DeadLetterInput) error {
	l := beginDeadLetters(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, l.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return l.run(ctx)
}

// deadLetters is the state of a DeadLetterWorkflow.
type deadLetters struct {
	id       string
	tenant   string        // of all; "" if there are several
	first    *DeadLetter   // of those with which the run has begun; nil: there was none
	kept     []*DeadLetter // that are still here
	left     []leftMember
	before   int // how many have left in earlier runs
	signals  signals
	refused  refusals   // signals that were ignored
	shown    shownState // in the Web UI
	lookAt   time.Time  // when the store is to be looked at
	discards bool       // whatever has left was discarded
}

func beginDeadLetters(ctx workflow.Context, in DeadLetterInput) *deadLetters {
	l := &deadLetters{
		id: workflow.GetInfo(ctx).WorkflowExecution.ID, kept: slices.DeleteFunc(in.DeadLetters, func(m *DeadLetter) bool { return m == nil }),
		before: in.Before, signals: newSignals(ctx), refused: in.Refused, shown: shownAtStart(ctx), discards: true,
	}
	l.tenant = tenantOf(l.kept)
	for _, m := range l.kept {
		if m.GivenUpAt.IsZero() {
			m.GivenUpAt = workflow.Now(ctx)
		}
		replay, discard := m.Replay, m.Discard
		m.Replay, m.Discard = nil, nil
		if replay != nil {
			m.handle(webhook.CommandReplay, *replay)
		}
		if discard != nil {
			m.handle(webhook.CommandDiscard, *discard)
		}
	}
	if len(l.kept) > 0 {
		l.first, l.lookAt = l.kept[0], nextLook(l.kept[0].GivenUpAt, workflow.Now(ctx))
	}
	if slices.ContainsFunc(l.kept, func(m *DeadLetter) bool { return m.Unconfirmed }) {
		l.lookAt = workflow.Now(ctx) // the store names another workflow
	}
	return l
}

func (l *deadLetters) status() ([]Status, error) {
	all := make([]Status, len(l.kept))
	for i, m := range l.kept {
		all[i] = Status{Ref: m.Ref, Progress: m.Progress, LastError: m.LastError}
	}
	return all, nil
}

func (l *deadLetters) run(ctx workflow.Context) error {
	l.describe(ctx)
	l.shown.show(ctx, webhook.StateDeadLettered)
	l.setRetention(ctx)
	for {
		l.receiveSignals(ctx)
		l.release(ctx)
		replayed, discarded := l.due(workflow.Now(ctx))
		switch {
		case l.refused.audit(ctx, l.tenant, l.subject(), l.one()):
			l.describe(ctx)
		case len(l.kept) == 0:
			l.end(ctx)
			return nil // nothing has blocked since the signals were received: none is lost
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return l.continueAsNew(ctx)
		case len(replayed) > 0:
			l.reopen(ctx, replayed)
		case len(discarded) > 0:
			l.discard(ctx, discarded)
		case !workflow.Now(ctx).Before(l.lookAt):
			l.look(ctx)
		default:
			l.wait(ctx)
		}
	}
}

// setRetention sets until when those are kept that have just been given up.
func (l *deadLetters) setRetention(ctx workflow.Context) {
	isNew := func(m *DeadLetter) bool { return m.KeepUntil.IsZero() }
	if !slices.ContainsFunc(l.kept, isNew) {
		return
	}
	keep := keepFor(ctx)
	for _, m := range l.kept {
		if isNew(m) {
			m.KeepUntil = m.GivenUpAt.Add(keep)
		}
	}
	l.describe(ctx)
}

// keepFor is how long dead letters are kept, as the worker's settings say now.
func keepFor(ctx workflow.Context) time.Duration {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	for {
		var kept time.Duration
		if err := workflow.ExecuteLocalActivity(localOptions(disconnected, "retention"), acts.DeadLetters.KeepFor).Get(disconnected, &kept); err == nil {
			return kept
		}
		_ = workflow.NewTimerWithOptions(disconnected, time.Second, workflow.TimerOptions{Summary: "retention"}).Get(disconnected, nil) // it is not cancelled
	}
}

// subject is what the audit log calls the workflow: the delivery, if there is only one.
func (l *deadLetters) subject() string {
	if l.isOne() {
		return l.first.DeliveryID.String()
	}
	return l.id
}

// one is one of the deliveries.
func (l *deadLetters) one() (id webhook.DeliveryID) {
	if l.first != nil {
		id = l.first.DeliveryID
	}
	return id
}

// isOne reports that the workflow has, and had, one dead letter.
func (l *deadLetters) isOne() bool { return l.before+len(l.left)+len(l.kept) == 1 && l.first != nil }

// due are those that are to be replayed now, and those that are to be discarded.
func (l *deadLetters) due(now time.Time) (replayed, discarded []*DeadLetter) {
	for _, m := range l.kept {
		switch {
		case m.nextStep().After(now):
		case m.Replay != nil:
			replayed = append(replayed, m)
		default:
			discarded = append(discarded, m)
		}
	}
	return replayed, discarded
}

// nextStep is when something is to be asked of the store for the dead letter.
func (m *DeadLetter) nextStep() time.Time {
	at := m.KeepUntil
	if m.Replay != nil || m.Discard != nil {
		at = time.Time{}
	}
	if at.Before(m.tryAt) {
		return m.tryAt
	}
	return at
}

// wait sleeps until a signal comes, the store is to be looked at, or a retention has passed.
func (l *deadLetters) wait(ctx workflow.Context) {
	l.describe(ctx)
	timerCtx, stop := workflow.WithCancel(ctx)
	if ctx.Err() != nil { // all are to be discarded already
		timerCtx, stop = workflow.NewDisconnectedContext(ctx)
	}
	defer stop()
	until, kept := l.lookAt, l.kept[0].KeepUntil
	for _, m := range l.kept {
		if at := m.nextStep(); at.Before(until) {
			until = at
		}
		if m.KeepUntil.After(kept) {
			kept = m.KeepUntil
		}
	}
	timer := workflow.NewTimerWithOptions(timerCtx, until.Sub(workflow.Now(ctx)), workflow.TimerOptions{
		Summary: "kept until " + kept.UTC().Format(time.RFC3339),
	})
	await(ctx, timer)
}

// firstLook is how long after a delivery was given up its workflow first looks at the store. The next looks are after twice
// as long each: five in 30 days.
const firstLook = 24 * time.Hour

// nextLook is when the store is to be looked at after now.
func nextLook(givenUp, now time.Time) time.Time {
	after := firstLook
	for !givenUp.Add(after).After(now) {
		after *= 2
	}
	return givenUp.Add(after)
}

// release lets go what is no dead letter any more.
func (l *deadLetters) release(ctx workflow.Context) {
	l.kept = slices.DeleteFunc(l.kept, func(m *DeadLetter) bool {
		words := m.became()
		if words == "" {
			return false
		}
		if m.gone || m.State.Open() {
			workflow.GetLogger(ctx).Warn("a dead letter is let go", "delivery", m.DeliveryID.String(), "because", words)
		}
		l.discards = l.discards && m.State == webhook.StateDiscarded
		l.left = append(l.left, leftMember{m.Ref, words})
		return true
	})
}

// became is what has become of the dead letter, in words; "" if it is one still.
func (m *DeadLetter) became() string {
	switch {
	case m.gone:
		return "no longer in the store"
	case m.opened.Run != 0:
		return explain.OtherRun(m.opened.Run, m.opened.WorkflowID)
	case m.State.Open(): // the store was restored from an older copy: the reconciler starts what goes on from there
		return "open, as the store says"
	case m.State != webhook.StateDeadLettered:
		return m.State.String() + ": " + explain.Outcome(m.Reason)
	}
	return ""
}

// end shows how the last dead letters have left.
func (l *deadLetters) end(ctx workflow.Context) {
	l.describe(ctx)
	if l.discards && len(l.left) > 0 {
		l.shown.show(ctx, webhook.StateDiscarded)
	} else {
		l.shown.clear(ctx)
	}
}

// describe sets the details: of the one dead letter, or a list.
func (l *deadLetters) describe(ctx workflow.Context) {
	if l.isOne() {
		workflow.SetCurrentDetails(ctx, l.first.details(ctx)+l.refused.details())
		return
	}
	lines := make([]string, len(l.kept))
	for i, m := range l.kept {
		lines[i] = memberLine(m.Ref, m.State.String()+". "+explain.Delivery(m.situation(ctx)).Summary)
	}
	workflow.SetCurrentDetails(ctx, memberList(lines, l.left, l.before)+l.refused.details())
}

// details are those of the only dead letter of its workflow.
func (m *DeadLetter) details(ctx workflow.Context) string {
	if m.opened.Run != 0 {
		return plain(m.became()) + "\n"
	}
	return details(m.situation(ctx))
}

func (m *DeadLetter) situation(ctx workflow.Context) explain.Situation {
	s := situation(ctx, &m.DeliveryState)
	if m.State == webhook.StateDeadLettered {
		s.Delivery.CompletedAt, s.Kept = m.GivenUpAt, max(m.KeepUntil.Sub(m.GivenUpAt), 0)
	}
	return s
}

// continueAsNew continues with an empty history, and with the commands that are not carried out yet.
func (l *deadLetters) continueAsNew(ctx workflow.Context) error {
	for _, m := range l.kept {
		for _, signal := range []*CommandSignal{m.Replay, m.Discard} {
			if signal != nil {
				signal.CommandID = 0 // it counts as handled: by its id it would be ignored
			}
		}
	}
	l.shown.clear(ctx)
	return continueAs(ctx, DeadLetterWorkflow, DeadLetterInput{DeadLetters: l.kept, Before: l.before + len(l.left), Refused: l.refused})
}
