package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// longFanout is how many events a shared workflow's history may have. The history is read
	// again for every workflow task that finds the workflow no longer in memory.
	longFanout = 500
	// gatherDead is how long dead letters are gathered for one workflow while other deliveries are open.
	gatherDead = 10 * time.Second
	// shortestTimer is the least time between two workflow tasks of a shared workflow.
	shortestTimer = 10 * time.Millisecond
)

// FanoutInput is several deliveries whose attempts are made concurrently.
type FanoutInput struct {
	Deliveries []FanoutDelivery `json:"deliveries"`
	// Members are the members of the workflow run before, when the workflow continues as new.
	Members []*Member `json:"members,omitempty"`
	// Before is how many deliveries have ended or left in earlier runs.
	Before int `json:"before,omitempty"`
	// Batch is how many batches of dead letters have left.
	Batch   int       `json:"batch,omitempty"`
	Refused []Refusal `json:"refused,omitempty"` // signals of earlier runs that were ignored
}

// FanoutDelivery is one delivery of a FanoutInput.
type FanoutDelivery struct {
	webhook.Ref

	// Progress is where the delivery goes on.
	Progress webhook.Progress `json:"progress"`
	// Trace says where the delivery's spans belong.
	Trace webhook.Trace `json:"trace,omitempty"`
}

// FanoutWorkflow is the shared workflow: it makes the attempts of several deliveries, which costs a fraction of a
// workflow for each. Deliveries that are given up go to a workflow that keeps them together. One that gets a command, or is sent by
// another process, continues in a workflow of its own; the cancel of a deleted endpoint ends it here. The store names the workflow of
// each delivery.
//
// Cancelling a FanoutWorkflow hands all its deliveries over now.
func FanoutWorkflow(ctx workflow.Context, in FanoutInput) error {
	f := newFanout(ctx, in)
	if err := workflow.SetQueryHandler(ctx, QueryStatus, f.status); err != nil {
		return fmt.Errorf("set the status query: %w", err)
	}
	return f.run(ctx)
}

// fanout is the state of a FanoutWorkflow.
type fanout struct {
	id      string
	tenant  string             // of all deliveries; "" if there are several
	one     webhook.DeliveryID // of the deliveries with which the run has begun
	signals signals
	members []*Member     // that are still here
	left    []leftMember  // that have ended, or left for another workflow
	before  int           // how many did so in earlier runs
	refused refusals      // signals that were ignored
	shown   shownState    // in the Web UI
	rested  bool          // the workflow task has begun with a timer or a signal, and no attempt was made since
	batch   int           // of the dead letters that are gathered
	pause   time.Duration // after the last workflows that could not be started
}

// Member is a delivery in a shared workflow.
type Member struct {
	DeliveryState

	Leaving bool      `json:"leaving,omitempty"`  // the delivery moves to another workflow
	GivenUp bool      `json:"given_up,omitempty"` // to one that keeps dead letters, and not to one of its own
	LeaveAt time.Time `json:"leave_at,omitzero"`  // a leaving delivery stays until then; zero: it goes at once
	CheckAt time.Time `json:"check_at,omitzero"`  // the request is under way: ask for its result again then
}

func newFanout(ctx workflow.Context, in FanoutInput) *fanout {
	f := &fanout{
		id: workflow.GetInfo(ctx).WorkflowExecution.ID, signals: newSignals(ctx), members: in.Members, before: in.Before, batch: in.Batch,
		refused: in.Refused,
	}
	for _, d := range in.Deliveries {
		f.members = append(f.members, &Member{DeliveryState: DeliveryState{Ref: d.Ref, Progress: d.Progress, Trace: d.Trace}})
	}
	f.tenant = tenantOf(f.members)
	if len(f.members) > 0 {
		f.one = f.members[0].DeliveryID
	}
	return f
}

// status is the state of the deliveries that are still here.
func (f *fanout) status() ([]Status, error) {
	all := make([]Status, len(f.members))
	for i, m := range f.members {
		all[i] = Status{Ref: m.Ref, Progress: m.Progress, LastError: m.LastError}
	}
	return all, nil
}

func (f *fanout) run(ctx workflow.Context) error {
	for {
		f.receiveSignals(ctx)
		leaving, due := f.leavingAndDue(ctx)
		dead := f.givenUp(workflow.Now(ctx))
		switch {
		case f.refused.audit(ctx, f.tenant, f.id, f.one):
			f.describe(ctx)
		case len(due) > 0:
			f.attempt(ctx, samePlace(due))
		case len(leaving) > 0:
			f.handOver(ctx, leaving)
		case len(dead) > 0:
			f.keep(ctx, dead)
		case len(f.members) == 0:
			f.show(ctx)
			return nil // nothing has blocked since the signals were received: none is lost
		case f.long(ctx):
			return f.continueAsNew(ctx)
		default:
			f.wait(ctx)
		}
	}
}

// long reports that it is time to continue as new.
func (f *fanout) long(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetCurrentHistoryLength() > longFanout
}

// continueAsNew continues with an empty history, and the members as they are.
func (f *fanout) continueAsNew(ctx workflow.Context) error {
	f.describe(ctx)
	f.shown.clear(ctx)
	return continueAs(ctx, FanoutWorkflow, FanoutInput{
		Members: f.members, Before: f.before + len(f.left), Batch: f.batch, Refused: f.refused,
	})
}

// givenUp returns the dead letters that have been gathered, if it is time for them to leave.
func (f *fanout) givenUp(now time.Time) (dead []*Member) {
	isTime := false
	for _, m := range f.members {
		if m.GivenUp {
			dead = append(dead, m)
			isTime = isTime || !m.LeaveAt.After(now)
		}
	}
	if !isTime && (len(dead) < len(f.members) || f.pause > 0) {
		dead = nil
	}
	return dead
}

// leavingAndDue returns the members that leave for workflows of their own, and those whose next attempt is due. Attempts that
// share a timer are requested together, a little early, and wait by themselves. There is only one round
// of attempts per workflow task, so that no task takes long (R4).
func (f *fanout) leavingAndDue(ctx workflow.Context) (leaving, due []*Member) {
	now := workflow.Now(ctx)
	early, anyDue := now.Add(activities.MaxEarly), false
	for _, m := range f.members {
		switch {
		case m.GivenUp:
		case m.Leaving:
			if !m.LeaveAt.After(now) {
				leaving = append(leaving, m)
			}
		case !m.due().After(early):
			due = append(due, m)
			anyDue = anyDue || !m.due().After(now) || f.rested && !m.nextStep().After(now)
		}
	}
	if !anyDue {
		due = nil
	}
	return leaving, due
}

// samePlace returns those of the due members whose attempts are made where the first one's is: in this worker, or in any. The others come
// next.
func samePlace(due []*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(due), func(m *Member) bool { return m.passes() != due[0].passes() })
}

// attempt makes the next attempt of those that are due.
func (f *fanout) attempt(ctx workflow.Context, due []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	f.rested = false
	first := workflow.GetInfo(ctx).GetCurrentHistoryLength() <= firstTaskLength
	inputs := make([]activities.AttemptInput, len(due))
	for i, m := range due {
		inputs[i] = activities.AttemptInput{
			Ref: m.Ref, Progress: m.Progress, FirstTask: first, Shared: f.id, KeptIn: f.keeper(), Faults: m.Faults, Trace: traceInRun(ctx, &m.DeliveryState),
		}
	}
	var result activities.AttemptsResult
	summary := fmt.Sprintf("attempt %d of %s", due[0].Attempts+1, deliveries(len(due)))
	err := executeAttempt(disconnected, due[0].passes(), summary, acts.Attempts.Attempts, inputs).Get(disconnected, &result)
	if err != nil {
		f.fault(ctx, message(err), due...)
		return
	}
	finished := make(map[*Member]bool, len(due))
	for _, m := range due {
		finished[m] = true
	}
	for _, fault := range result.Faults {
		met := make([]*Member, len(fault.Of))
		for i, index := range fault.Of {
			met[i] = due[index]
			delete(finished, met[i])
		}
		f.fault(ctx, fault.What, met...)
	}
	ends := endsOf(due, result.Ended)
	for i := range result.Members {
		member := &result.Members[i]
		m := due[member.Index]
		if f.sync(ctx, m, member) {
			delete(finished, m)
		} else {
			ends[m] = ownWorkflow
		}
	}
	f.removeFinished(due, finished, ends)
}

// sync updates a member with the result of its attempt. It reports whether it stays a member.
func (f *fanout) sync(ctx workflow.Context, m *Member, result *activities.MemberResult) (stays bool) {
	switch {
	case result.Fault != "":
		if result.Run == m.Run { // the store has the fault
			m.Progress = result.Progress
		}
		f.fault(ctx, result.Fault, m)
		return true
	case result.Running:
		m.CheckAt = result.CheckAt
		return true
	case result.Run != m.Run:
		return false // replayed meanwhile: the workflow of that run has it
	}
	before, asked := m.CommandDone, m.Command
	m.CheckAt = time.Time{}
	m.apply(&result.AttemptResult)
	if m.State == webhook.StateDeadLettered && asked.Command != webhook.CommandNone {
		m.Command = asked // while nothing was known of it
	}
	switch {
	case m.State == webhook.StateDeadLettered && result.WorkflowID != m.ownID():
		m.Leaving, m.GivenUp, m.Unconfirmed, m.LeaveAt = true, true, false, workflow.Now(ctx).Add(gatherDead)
	case m.Command.Command != webhook.CommandNone, m.CommandDone > before, !result.ClaimedUntil.IsZero():
		m.markLeaving() // its own workflow handles the command, or acknowledges it, or waits for the other process
	case result.WorkflowID != f.id, m.State != webhook.StateRetrying && !m.Deferred():
		m.Leaving, m.Unconfirmed = true, result.WorkflowID != m.ownID() || m.State == webhook.StateDeadLettered
	}
	return true
}

// fault lets deliveries that have met an internal fault wait.
func (f *fanout) fault(ctx workflow.Context, what string, met ...*Member) {
	now := workflow.Now(ctx)
	for _, m := range met {
		m.Running = m.Running || !m.CheckAt.IsZero() // its request may be under way
		m.CheckAt = time.Time{}
		m.waitUntil(f.nextTry(m, now, m.addFault(what)))
	}
	workflow.GetLogger(ctx).Warn("attempts could not be made", "deliveries", len(met), "first", met[0].DeliveryID.String(),
		"tries", met[0].Faults, "error", what)
}

// nextTry is when a member tries again after a pause. It reuses another faulty member's retry time if
// that falls in the second half of the pause, so that they share a timer.
func (f *fanout) nextTry(m *Member, now time.Time, pause time.Duration) time.Time {
	latest := now.Add(pause)
	for _, other := range f.members {
		if other != m && other.Faults > 0 && !other.Leaving && !other.DueAt.Before(now.Add(pause/2)) && !other.DueAt.After(latest) {
			return other.DueAt
		}
	}
	return latest
}

// handOver starts the deliveries' own workflows. Those that could not be started are tried again later,
// and do not make the others wait.
func (f *fanout) handOver(ctx workflow.Context, leaving []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	all := make([]activities.DeliveryState, len(leaving))
	for i, m := range leaving {
		all[i] = activities.DeliveryState(m.DeliveryState)
	}
	var handed activities.HandedOver
	summary := "to workflows of their own: " + deliveries(len(leaving))
	if err := workflow.ExecuteLocalActivity(localOptions(disconnected, summary), acts.HandOvers.HandOver, all).Get(disconnected, &handed); err != nil {
		handed = activities.HandedOver{Fault: message(err)}
		for i := range leaving {
			handed.Remaining = append(handed.Remaining, i)
		}
	}
	gone := make(map[*Member]bool, len(leaving))
	for _, m := range leaving {
		gone[m] = true
	}
	for _, i := range handed.Remaining {
		delete(gone, leaving[i])
	}
	for _, m := range leaving {
		if gone[m] {
			f.left = append(f.left, leftMember{m.Ref, ownWorkflow})
		}
	}
	f.remove(func(m *Member) bool { return gone[m] })
	if len(gone) > 0 {
		f.pause = 0
	}
	if len(handed.Remaining) == 0 {
		return
	}
	rest := make([]*Member, len(handed.Remaining))
	for i, index := range handed.Remaining {
		rest[i] = leaving[index]
	}
	f.putOff(ctx, rest, handed.Fault)
}

// putOff has members leave later, because their workflows could not be started.
func (f *fanout) putOff(ctx workflow.Context, rest []*Member, fault string) {
	f.pause = min(max(2*f.pause, time.Second), longestPause)
	for _, m := range rest {
		m.LeaveAt = workflow.Now(ctx).Add(f.pause)
	}
	workflow.GetLogger(ctx).Warn("deliveries could not leave yet", "count", len(rest), "error", fault)
}

// keeper is the workflow that keeps the dead letters which are gathered.
func (f *fanout) keeper() string { return webhook.DeadLettersWorkflowID(f.id, f.batch) }

// keep starts the workflow of gathered dead letters. Those that it does not have, because a lost workflow task has started it before they
// were there, are of the next batch.
func (f *fanout) keep(ctx workflow.Context, dead []*Member) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	in := activities.Keeping{WorkflowID: f.keeper(), DeadLetters: make([]activities.DeliveryState, len(dead))}
	for i, m := range dead {
		in.DeadLetters[i] = activities.DeliveryState(m.DeliveryState)
	}
	var kept activities.Kept
	summary := "to a workflow of dead letters: " + deliveries(len(dead))
	if err := workflow.ExecuteLocalActivity(localOptions(disconnected, summary), acts.DeadLetters.Keep, in).Get(disconnected, &kept); err != nil {
		f.putOff(ctx, dead, message(err))
		return
	}
	f.pause = 0
	f.batch++
	gone := make(map[*Member]bool, len(dead))
	for i, m := range dead {
		if !slices.Contains(kept.Left, i) {
			gone[m] = true
			f.left = append(f.left, leftMember{m.Ref, keptIn + in.WorkflowID})
		}
	}
	f.remove(func(m *Member) bool { return gone[m] })
}

// wait sleeps until a member is to be handed over or attempted, or a signal comes.
func (f *fanout) wait(ctx workflow.Context) {
	timerCtx, stop := workflow.WithCancel(ctx)
	if ctx.Err() != nil { // all members leave already
		timerCtx, stop = workflow.NewDisconnectedContext(ctx)
	}
	defer stop()
	f.show(ctx)
	f.rested = true
	// A timer that is due already would fire without the task coming to its end.
	timer := workflow.NewTimerWithOptions(timerCtx, max(f.timer().Sub(workflow.Now(ctx)), shortestTimer), workflow.TimerOptions{
		Summary: "next step of " + deliveries(len(f.members)),
	})
	await(ctx, timer)
}

// timer is when the first member's next step is due.
func (f *fanout) timer() time.Time {
	var next time.Time
	for _, m := range f.members {
		if at := m.nextStep(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// due is when the next attempt is made, or the result of the one under way requested.
func (m *Member) due() time.Time {
	if !m.CheckAt.IsZero() {
		return m.CheckAt
	}
	return m.DueAt
}

// nextStep is when the delivery is to be handed over, or its next attempt requested.
func (m *Member) nextStep() time.Time {
	switch {
	case m.Leaving:
		return m.LeaveAt
	case !m.CheckAt.IsZero():
		return m.CheckAt
	}
	return m.DeliveryState.nextStep()
}

// markLeaving has the delivery's own workflow continue it. That workflow also waits for a request under way.
func (m *Member) markLeaving() {
	m.Leaving, m.Unconfirmed, m.Running = true, true, m.Running || !m.CheckAt.IsZero()
}

// removeFinished removes the members that have nothing left to be done. They were delivered, unless something else
// became of them.
func (f *fanout) removeFinished(due []*Member, finished map[*Member]bool, ends map[*Member]string) {
	for _, m := range due {
		if !finished[m] {
			continue
		}
		words, other := ends[m]
		if !other {
			words = deliveredWords(m.Attempts + 1)
		}
		f.left = append(f.left, leftMember{m.Ref, words})
	}
	f.remove(func(m *Member) bool { return finished[m] })
}

func (f *fanout) remove(gone func(*Member) bool) {
	kept := f.members[:0]
	for _, m := range f.members {
		if !gone(m) {
			kept = append(kept, m)
		}
	}
	clear(f.members[len(kept):])
	f.members = kept
}
