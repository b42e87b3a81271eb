package workflows

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// longHistory is how many events a history may have before the workflow continues as new. The history is read
	// again for every workflow task that finds the workflow no longer in memory.
	longHistory = 500
	// gatherDead is how long dead letters are gathered for one workflow while other deliveries are open.
	gatherDead = 10 * time.Second
	// shortestTimer is the least time between two workflow tasks.
	shortestTimer = 10 * time.Millisecond
	// longestPause is the longest pause between tries to store a step, or to start the workflow of dead letters.
	longestPause = time.Minute
)

// DeliveryInput is the deliveries that a workflow makes, or continues: 1 to webhook.MaxAssigned.
type DeliveryInput struct {
	Members []*Member `json:"members"`
	// Before is how many deliveries have ended or left in earlier runs of the workflow.
	Before int `json:"before,omitempty"`
	// Batch is how many batches of dead letters have left.
	Batch   int       `json:"batch,omitempty"`
	Refused []Refusal `json:"refused,omitempty"` // signals of earlier runs that were ignored
}

// DeliveryWorkflow carries the open deliveries of one workflow: attempt, durable timer, attempt, each by its endpoint's policy. One
// workflow for several costs a fraction of a workflow for each. The store names the workflow of each delivery.
//
// A delivery leaves when it is delivered, cancelled or held, when the store names another run or, unless the workflow is its own, another
// workflow. The own workflow of a delivery that is given up continues as DeadLetterWorkflow; those of a shared one go to a
// DeadLetterWorkflow that keeps them together. A held delivery with which a workflow begins was released: it is attempted at once.
//
// Cancelling the own workflow of a delivery cancels the delivery. Cancelling a shared one, which may have deliveries of many, ends nothing:
// it continues as new.
func DeliveryWorkflow(ctx workflow.Context, in DeliveryInput) error {
	d := newOpenDeliveries(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, d.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return d.run(ctx)
}

// openDeliveries is the state of a DeliveryWorkflow.
type openDeliveries struct {
	id      string
	own     bool          // the workflow is its delivery's own
	first   *Member       // of those with which the run has begun; nil: there was none
	tenant  string        // of all of them; "" if there are several
	members []*Member     // that are still here
	left    []leftMember  // that have ended, or left for another workflow
	before  int           // how many did so in earlier runs
	batch   int           // of the dead letters that are gathered
	pause   time.Duration // after the last steps that could not be stored, or workflow that could not be started
	rested  bool          // the workflow task has begun with a timer or a signal, and no attempt was made since
	worked  bool          // the run has stored or attempted something
	waited  bool          // the only delivery has waited for an attempt
	signals signals
	refused refusals   // signals that were ignored
	shown   shownState // in the Web UI
}

func newOpenDeliveries(ctx workflow.Context, in DeliveryInput) *openDeliveries {
	d := &openDeliveries{
		id: workflow.GetInfo(ctx).WorkflowExecution.ID, signals: newSignals(ctx), before: in.Before, batch: in.Batch, refused: in.Refused,
		members: slices.DeleteFunc(slices.Clone(in.Members), func(m *Member) bool { return m == nil }),
	}
	d.tenant = tenantOf(d.members)
	for _, m := range d.members {
		m.begin()
	}
	if len(d.members) > 0 {
		d.first = d.members[0]
		d.own = d.first.ownID() == d.id
	}
	return d
}

// status is the state of the deliveries that are still here, or of the only one.
func (d *openDeliveries) status() ([]Status, error) {
	here := d.members
	if d.own {
		here = []*Member{d.first} // also when it has ended
	}
	all := make([]Status, len(here))
	for i, m := range here {
		all[i] = Status{Ref: m.Ref, Progress: m.Progress, LastError: m.LastError}
	}
	return all, nil
}

func (d *openDeliveries) run(ctx workflow.Context) error {
	if d.own && d.first.Synced { // else it has the summary that it was started with
		d.describe(ctx)
	}
	for {
		d.receiveSignals(ctx)
		d.letGo()
		steps, due, dead := d.work(workflow.Now(ctx))
		switch {
		case d.refused.audit(ctx, d.tenant, d.subject(), d.one()):
			d.describe(ctx)
		case len(d.members) == 0:
			d.show(ctx)
			return nil // nothing has blocked since the signals were received: none is lost
		case d.own && d.first.isDead():
			return d.continueAsDeadLetter(ctx)
		case ctx.Err() != nil && !d.own:
			return d.continueAsNew(ctx)
		case len(steps) > 0:
			d.store(ctx, steps)
		case d.worked && d.isLong(ctx): // before the next attempts
			return d.continueAsNew(ctx)
		case len(due) > 0:
			d.attempt(ctx, samePlace(due))
		case len(dead) > 0:
			d.keep(ctx, dead)
		case d.isLong(ctx):
			return d.continueAsNew(ctx)
		default:
			d.wait(ctx)
		}
	}
}

// subject is what the audit log calls the workflow: its delivery, if it is its own.
func (d *openDeliveries) subject() string {
	if d.own {
		return d.first.DeliveryID.String()
	}
	return d.id
}

// one is one of the deliveries.
func (d *openDeliveries) one() (id webhook.DeliveryID) {
	if d.first != nil {
		id = d.first.DeliveryID
	}
	return id
}

// isLong reports that it is time to continue as new.
func (d *openDeliveries) isLong(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetCurrentHistoryLength() > longHistory || info.GetContinueAsNewSuggested()
}

// continueAsNew continues with an empty history, and the members as they are.
func (d *openDeliveries) continueAsNew(ctx workflow.Context) error {
	d.describe(ctx)
	d.shown.clear(ctx)
	return continueAs(ctx, DeliveryWorkflow, DeliveryInput{
		Members: d.members, Before: d.before + len(d.left), Batch: d.batch, Refused: d.refused,
	})
}

// continueAsDeadLetter continues as the dead letter. The store says dead_lettered already.
//
// Cancelling the workflow in the Web UI at this moment means the dead letter that the person sees
// already: a continued run does not inherit the request, so it is handed on.
func (d *openDeliveries) continueAsDeadLetter(ctx workflow.Context) error {
	d.describe(ctx)
	d.shown.clear(ctx)
	dead := NewDeadLetter(d.first.DeliveryState)
	if ctx.Err() != nil && dead.Discard == nil {
		dead.Discard = &CommandSignal{Reason: reasonWorkflowCancelled}
	}
	return continueAs(ctx, DeadLetterWorkflow, DeadLetterInput{DeadLetters: []*DeadLetter{dead}, Refused: d.refused})
}

// work returns what is to be done now: steps to be stored, attempts to be made, and dead letters that have been gathered. Attempts that
// share a timer are requested together, a little early, and wait by themselves. There is only one round
// of attempts per workflow task, so that no task takes long (R4).
func (d *openDeliveries) work(now time.Time) (steps, due, dead []*Member) {
	early, isDue, leave := now.Add(activities.MaxEarly), false, false
	for _, m := range d.members {
		switch {
		case m.isDead():
			dead = append(dead, m)
			leave = leave || !m.KeepAt.After(now)
		case m.wantsStep(now):
			steps = append(steps, m)
		case !m.ends(now) && !m.dueAt().After(early):
			due = append(due, m)
			isDue = isDue || !m.dueAt().After(now) || d.rested && !m.next(now).After(now)
		}
	}
	if !isDue {
		due = nil
	}
	if !leave && (len(dead) < len(d.members) || d.pause > 0) {
		dead = nil
	}
	return steps, due, dead
}

// samePlace returns those of the due members whose attempts are made where the first one's is: in this worker, or in any. The others come
// next.
func samePlace(due []*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(due), func(m *Member) bool { return m.passes() != due[0].passes() })
}

// attempt makes the next attempts of those that are due. A cancel never aborts a request that is under way (R5).
func (d *openDeliveries) attempt(ctx workflow.Context, due []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	d.rested, d.worked = false, true
	info := workflow.GetInfo(ctx)
	firstTask := info.GetCurrentHistoryLength() <= firstTaskLength && info.ContinuedExecutionRunID == ""
	inputs := make([]activities.AttemptInput, len(due))
	for i, m := range due {
		in := m.input()
		in.FirstTask = firstTask && !m.Synced && !in.Running && in.Faults == 0
		in.Trace = m.Trace.InRun(info.WorkflowExecution.RunID, m.DeliveryID)
		if !d.own {
			in.Shared, in.KeptIn = d.id, d.keeper()
		}
		inputs[i] = in
	}
	var result activities.AttemptsResult
	if err := executeAttempts(disconnected, due, inputs).Get(disconnected, &result); err != nil {
		d.fault(ctx, message(err), due...)
		return
	}
	for _, m := range due {
		m.leaves = deliveredWords(m.Attempts + 1) // unless something else is said of it
	}
	for _, fault := range result.Faults {
		met := make([]*Member, len(fault.Of))
		for i, index := range fault.Of {
			met[i] = due[index]
			met[i].leaves = ""
		}
		d.fault(ctx, fault.What, met...)
	}
	for _, end := range result.Ended {
		for _, index := range end.Of {
			d.guarded(ctx, due[index], func(m *Member) { m.leaves = d.end(workflow.Now(ctx), m, &end) })
		}
	}
	for i := range result.Members {
		r := &result.Members[i]
		d.guarded(ctx, due[r.Index], func(m *Member) { m.leaves = d.sync(ctx, m, r) })
	}
}

// end updates a member for which nothing is left to be done, unless a command has come for one that is held.
func (d *openDeliveries) end(now time.Time, m *Member, end *activities.End) (left string) {
	m.State, m.Reason = end.State, end.Reason
	m.Forced, m.Faults, m.LastError, m.Unowned = false, 0, "", 0
	if end.State == webhook.StateHeld {
		m.Seq, m.DueAt, m.Delay = m.Seq+1, time.Time{}, 0
	}
	return d.place(now, m, "")
}

// sync updates a member with the result of its attempt. It returns what became of it; "" if it stays.
func (d *openDeliveries) sync(ctx workflow.Context, m *Member, r *activities.MemberResult) (left string) {
	now := workflow.Now(ctx)
	switch {
	case r.Fault != "":
		if r.Run == m.Run { // the store has the fault
			m.Progress = r.Progress
			m.receive(r.Command)
		}
		d.fault(ctx, r.Fault, m)
		return ""
	case r.Running:
		m.awaitOwn(now, r.CheckAt)
		return ""
	case r.Run != m.Run:
		return m.becomes(explain.OtherRun(r.Run, r.WorkflowID))
	case !r.ClaimedUntil.IsZero() && (d.own || !d.isElsewhere(r.WorkflowID)):
		m.Faults, m.LastError = 0, ""
		m.receive(r.Command)
		m.awaitOther(now, r.ClaimedUntil)
		return ""
	}
	m.apply(now, &r.AttemptResult)
	return d.place(now, m, r.WorkflowID)
}

// isElsewhere reports that the store names another workflow. It names none for a held delivery.
func (d *openDeliveries) isElsewhere(workflowID string) bool {
	return workflowID != "" && workflowID != d.id
}

// place finds out where a member goes on, after the store has said how it is, and in which workflow (R8). It returns what became of it;
// "" if it stays. The own workflow of a delivery takes it over from any other.
func (d *openDeliveries) place(now time.Time, m *Member, workflowID string) (left string) {
	m.sync(now)
	elsewhere := d.isElsewhere(workflowID)
	switch {
	case m.isDead() && d.own:
		m.Unconfirmed = elsewhere
	case m.isDead() && workflowID == m.ownID():
		return keptIn + workflowID
	case m.isDead():
		m.Unconfirmed, m.KeepAt = false, now.Add(gatherDead)
	case !m.State.Open():
		return m.endWords()
	case m.State == webhook.StateHeld && !m.Forced && !m.isCancelled():
		m.held = true
	case elsewhere && d.own:
		m.Unconfirmed = true
	case elsewhere:
		return "continues in the workflow " + workflowID
	}
	return ""
}

// guarded does something for one delivery, in which nothing blocks. A panic is an internal fault of that one: the others go on, which a task
// that fails again and again would not let them.
func (d *openDeliveries) guarded(ctx workflow.Context, m *Member, do func(*Member)) {
	defer func() {
		if p := recover(); p != nil {
			m.leaves, m.held, m.Pending = "", false, nil // the store repeats its commands
			d.fault(ctx, panicWords(p), m)
			m.StoreAt = m.DueAt
		}
	}()
	do(m)
}

// panicWords are what is told of a panic: not its value, which may be anything, unless the runtime made it.
func panicWords(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return "a panic of the workflow: " + err.Error()
	}
	return "a panic of the workflow"
}

// fault lets deliveries that have met an internal fault wait.
func (d *openDeliveries) fault(ctx workflow.Context, what string, met ...*Member) {
	now := workflow.Now(ctx)
	for _, m := range met {
		m.faulted(now, d.nextTry(m, now, m.addFault(what)))
	}
	workflow.GetLogger(ctx).Warn("attempts could not be made", "deliveries", len(met), "first", met[0].DeliveryID.String(),
		"tries", met[0].Faults, "error", what)
}

// nextTry is when a member tries again after a pause. It reuses another faulty member's retry time if
// that falls in the second half of the pause, so that they share a timer.
func (d *openDeliveries) nextTry(m *Member, now time.Time, pause time.Duration) time.Time {
	latest := now.Add(pause)
	for _, other := range d.members {
		if other != m && other.Faults > 0 && !other.DueAt.Before(now.Add(pause/2)) && !other.DueAt.After(latest) {
			return other.DueAt
		}
	}
	return latest
}

// wait sleeps until something is to be done for a member, or a signal comes.
func (d *openDeliveries) wait(ctx workflow.Context) {
	timerCtx, stop := workflow.WithCancel(ctx)
	if ctx.Err() != nil { // the delivery ends already
		timerCtx, stop = workflow.NewDisconnectedContext(ctx)
	}
	defer stop()
	d.show(ctx)
	d.rested = true
	now := workflow.Now(ctx)
	first := slices.MinFunc(d.members, func(a, b *Member) int { return a.next(now).Compare(b.next(now)) })
	summary := "next step of " + deliveries(len(d.members))
	if len(d.members) == 1 {
		summary = first.waitSummary()
	}
	// A timer that is due already would fire without the task coming to its end.
	timer := workflow.NewTimerWithOptions(timerCtx, max(first.next(now).Sub(now), shortestTimer), workflow.TimerOptions{Summary: summary})
	await(ctx, timer)
}

// letGo removes the members that leave, after the signals that have come meanwhile were received: one may be for a delivery that is held by
// now.
func (d *openDeliveries) letGo() {
	d.members = slices.DeleteFunc(d.members, func(m *Member) bool {
		if m.held {
			m.leaves = m.endWords()
		}
		if m.leaves != "" {
			d.left = append(d.left, leftMember{m.Ref, m.leaves})
		}
		return m.leaves != ""
	})
}
