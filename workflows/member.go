package workflows

import (
	"cmp"
	"slices"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// clockSlack is the least wait after an attempt that sent nothing and names no time: the clocks of the
// store, the worker and Temporal differ, and a delivery that is due by only one of them must not spin.
const clockSlack = time.Second

// Member is a delivery of a DeliveryWorkflow. It is in one of these states, which the fields say:
//
//	dead      it is a dead letter, and about to leave
//	checking  a request is under way, here or in another process: CheckAt
//	ending    it ends without another attempt: ends
//	waiting   the next attempt is due at DueAt; zero: now
//
// A command waits in Pending while this process makes a request, whose outcome decides first (R5), and while nothing is known of what the store has:
// the first attempt may have been made eagerly, and would be taken for the one that a person asked for.
type Member struct {
	DeliveryState

	NotBefore time.Time `json:"not_before,omitzero"` // the event's deliver_at

	// Forced: a person requested the next attempt. It is made although the endpoint's circuit is open,
	// and its outcome decides whether the circuit closes.
	Forced bool `json:"forced,omitempty"`

	// Terminated: a person terminated the workflow that carried the delivery. The delivery is given
	// up, so that the store and the dead letters show it, unless there is a command for it.
	Terminated bool `json:"terminated,omitempty"`

	// Synced: the workflow has begun with what the store has, or has made an attempt. Only before, in the first task of the workflow, may
	// a fresh token stand for a claim: no lost task can have sent a request.
	Synced bool `json:"synced,omitempty"`

	// Pending are commands that are not carried out yet, one of each kind.
	Pending []webhook.PendingCommand `json:"pending,omitempty"`

	CheckAt time.Time `json:"check_at,omitzero"` // a request is under way: its outcome is looked for then
	Since   time.Time `json:"since,omitzero"`    // since when another process's has been looked for; zero: this process makes it
	StoreAt time.Time `json:"store_at,omitzero"` // no step is stored before, unless an attempt leads to it
	KeepAt  time.Time `json:"keep_at,omitzero"`  // a dead letter leaves then at the latest

	held   bool   // it leaves for its release, unless a command comes
	leaves string // what has become of it, in words: it is about to leave; "": it stays
	became string // the same, if it is neither an end nor a hold
}

// begin returns a member as a workflow begins with it.
func (m *Member) begin() *Member {
	m.Synced = m.Synced || m.Unconfirmed || m.Run > 1 || m.Seq > 0
	return m
}

// receive keeps a command until it is carried out. The last one of a kind counts, of cancels the first; the highest id is acknowledged.
func (m *Member) receive(c webhook.PendingCommand) {
	if c.Command == webhook.CommandNone {
		return
	}
	if i := slices.IndexFunc(m.Pending, func(other webhook.PendingCommand) bool { return other.Command == c.Command }); i >= 0 {
		before := m.Pending[i]
		if c.ID != 0 && c.ID < before.ID {
			return
		}
		if c.Command == webhook.CommandCancel {
			c.Reason = before.Reason
		}
		c.ID = max(c.ID, before.ID)
		m.Pending = slices.Delete(m.Pending, i, i+1)
	}
	m.Pending = append(m.Pending, c)
}

// carryOut carries out the pending commands for which the time has come. A cancel need not know what the store has, and waits only for
// a request of this process: the store does not let it overtake another one.
func (m *Member) carryOut(now time.Time) {
	waits, guarded := m.isChecking() || m.Running, !m.Since.IsZero() || m.Faults > 0 && !m.isChecking()
	isTime := func(c webhook.PendingCommand) bool {
		if c.Command == webhook.CommandCancel {
			return !waits || guarded
		}
		return !waits && m.Synced
	}
	m.Pending = slices.DeleteFunc(m.Pending, func(c webhook.PendingCommand) bool {
		if !isTime(c) {
			return false
		}
		m.Running, m.CheckAt = m.Running || m.isChecking(), time.Time{} // another process's claim keeps the delivery from ending
		m.obey(now, c)
		return true
	})
}

// obey changes the state as a command says. It ignores commands that have been handled, or make no sense for a delivery in its state: the
// API has refused those already. A dead letter takes its commands along, and they are not acknowledged.
func (m *Member) obey(now time.Time, c webhook.PendingCommand) {
	forDeadLetters := c.Command == webhook.CommandReplay || c.Command == webhook.CommandDiscard
	switch {
	case m.isDead() != forDeadLetters, !m.isDead() && !m.State.Open():
		return
	case forDeadLetters:
		m.Command = c
		return
	case c.ID != 0 && c.ID <= m.CommandDone:
		m.Unconfirmed = true // the store does not know
		return
	}
	switch c.Command {
	case webhook.CommandCancel:
		m.held = false
		m.Command = webhook.PendingCommand{Command: webhook.CommandCancel, Reason: c.Reason} // without its id, which counts as handled
	case webhook.CommandRetry:
		m.DueAt, m.NotBefore = time.Time{}, time.Time{}
		m.held, m.Forced, m.Terminated = false, true, false
		if m.State != webhook.StateHeld {
			m.Reason = ""
		}
	case webhook.CommandReschedule:
		m.reschedule(now, c.At)
	case webhook.CommandNone, webhook.CommandReplay, webhook.CommandDiscard:
	}
	m.CommandDone = max(m.CommandDone, c.ID)
}

// reschedule moves the next attempt, and before the first one the give-up time too, which counts from
// there. Without a time nothing changes; a time past the give-up time means the give-up time.
func (m *Member) reschedule(now, at time.Time) {
	switch {
	case at.IsZero():
		return
	case m.State == webhook.StatePending:
		from := m.NotBefore
		if from.IsZero() {
			from = now
		}
		m.GiveUpAt, m.NotBefore = m.GiveUpAt.Add(at.Sub(from)), at
	default:
		if end := m.ClockRunning(now).GiveUpAt; at.After(end) {
			at = end
		}
	}
	m.waitUntil(now, at)
	m.Unconfirmed, m.held, m.Forced, m.Terminated = true, false, true, false
}

// input is the input of the next attempt.
func (m *Member) input() activities.AttemptInput {
	return activities.AttemptInput{
		Ref: m.Ref, Progress: m.Progress, NotBefore: m.NotBefore, CommandDone: m.CommandDone, Forced: m.Forced,
		Running: m.Running || m.isChecking(), Faults: m.Faults,
	}
}

// apply updates the state with the result of an attempt.
func (m *Member) apply(now time.Time, r *activities.AttemptResult) {
	attempts := m.Attempts
	m.Progress, m.Faults, m.LastError = r.Progress, 0, ""
	if m.Deferred() && m.Reason == webhook.ReasonNoOwner {
		m.Unowned++
	} else {
		m.Unowned = 0
	}
	attempted := r.Attempts > attempts
	switch {
	case r.LastOutcome != nil:
		m.LastOutcome = r.LastOutcome
	case attempted && r.State == webhook.StateDelivered: // by another process: what the store says of its attempt does not come here
		m.LastOutcome = nil
	}
	m.Unconfirmed = m.Unconfirmed && !attempted
	m.Forced = false
	if m.State.Open() && m.State != webhook.StateHeld && !attempted && !m.DueAt.After(now) {
		m.DueAt = now.Add(clockSlack)
	}
	if r.Found && r.Command.ID != 0 && r.Command.ID <= m.CommandDone { // the outcome is of an attempt before it
		m.CommandDone = r.Command.ID - 1
	}
	if attempted && !r.Found && r.Command.Command == webhook.CommandRetry {
		// R7: this attempt was the retry. The next one keeps its time, and the store keeps the command
		// until a step acknowledges it.
		m.CommandDone, m.Unconfirmed = max(m.CommandDone, r.Command.ID), true
		return
	}
	m.receive(r.Command)
}

// sync notes that the store's status is known, and carries out the commands that have waited for that.
func (m *Member) sync(now time.Time) {
	m.Synced, m.Running, m.CheckAt, m.Since, m.StoreAt = true, false, time.Time{}, time.Time{}, time.Time{}
	m.carryOut(now)
}

// awaitOwn looks for the outcome of a request of this process at a time by its clock.
func (m *Member) awaitOwn(now, at time.Time) {
	m.CheckAt, m.Since = now.Add(max(at.Sub(now), clockSlack)), time.Time{}
}

// awaitOther looks for the outcome of another process's request: again and again, after as long as it has been looked for, and when its claim ends.
func (m *Member) awaitOther(now, claimedUntil time.Time) {
	if m.Since.IsZero() {
		m.Since = now
	}
	pause := min(max(now.Sub(m.Since), activities.CheckPause), claimedUntil.Sub(now))
	m.CheckAt = now.Add(max(pause, clockSlack))
}

func (m *Member) isChecking() bool { return !m.CheckAt.IsZero() }

func (m *Member) isDead() bool { return m.State == webhook.StateDeadLettered }

func (m *Member) isCancelled() bool { return !m.isDead() && m.Command.Command == webhook.CommandCancel }

// ends reports that the delivery is to end without another attempt: as asked for, or because something internal prevents its attempts.
func (m *Member) ends(now time.Time) bool {
	switch {
	case m.isCancelled():
		return true
	case m.isChecking():
		return false
	}
	return !m.nextStep().After(now) && (m.Terminated || m.Faults > 0 && m.Expired(now))
}

// wantsStep reports that a step is to be stored now to which no attempt leads: an end; or, before a wait, which commands have been
// handled, when the next attempt is due after them, and that this workflow continues the delivery. Without it the relay would signal
// a command again, every few seconds, until the next attempt is stored.
func (m *Member) wantsStep(now time.Time) bool {
	return !m.StoreAt.After(now) && (m.ends(now) || m.Unconfirmed && !m.isChecking() && !m.Running && m.nextStep().After(now))
}

// step is that step. keeper is the workflow that keeps the delivery if it is given up; "" for its own.
func (m *Member) step(now time.Time, workflowID, keeper string) webhook.Step {
	step := webhook.Step{Ref: m.Ref, Progress: m.Progress, WorkflowID: workflowID, CommandDone: m.CommandDone, LastError: m.LastError}
	step.Seq++
	switch {
	case m.isCancelled():
		step.State, step.Reason, step.DueAt = webhook.StateCancelled, cmp.Or(m.Command.Reason, webhook.ReasonCancelled), time.Time{}
		step.LastError = ""
	case !m.ends(now), m.Terminated && m.Unconfirmed: // first the store is asked for the commands that came before and after the termination
	case m.Terminated:
		step.SetDeadLettered(webhook.ReasonTerminated, keeper)
	default:
		step.SetDeadLettered(string(retry.ReasonInternal), keeper)
	}
	return step
}

// next is when something is to be done for the delivery.
func (m *Member) next(now time.Time) time.Time {
	at := m.nextStep()
	switch {
	case m.isDead():
		return m.KeepAt
	case m.isChecking():
		return m.CheckAt
	case m.ends(now), m.Unconfirmed && m.StoreAt.Before(at):
		return m.StoreAt
	}
	return at
}

// dueAt is when the next attempt is made, or the outcome of the one under way looked for.
func (m *Member) dueAt() time.Time {
	if m.isChecking() {
		return m.CheckAt
	}
	return m.DueAt
}

// faulted lets the delivery wait after an internal fault, until a time.
func (m *Member) faulted(now, until time.Time) {
	m.Running = m.Running || m.isChecking() // its request may be under way
	m.CheckAt = time.Time{}
	m.waitUntil(now, until)
}

// waitUntil postpones the next attempt. The reason of an earlier wait no longer applies.
func (m *Member) waitUntil(now, at time.Time) {
	m.Progress = m.WaitingUntil(now, at)
	m.Reason = ""
}

// DeliveryState is what a workflow knows of one of its deliveries. A DeliveryWorkflow and a DeadLetterWorkflow have
// one or many. The state moves with the delivery between workflows.
type DeliveryState activities.DeliveryState

func (s *DeliveryState) tenant() string { return s.TenantID }

// ownID is the id of the workflow of the delivery's run that it has for itself.
func (s *DeliveryState) ownID() string { return s.WorkflowID(s.Run) }

// addFault counts an internal fault, and returns the pause before the next try: 1 s doubling to
// 1 min. No attempt is counted, and nothing is recorded against the receiver.
func (s *DeliveryState) addFault(fault string) (pause time.Duration) {
	s.Faults++
	s.LastError = fault
	return min(time.Second<<min(s.Faults-1, 6), time.Minute)
}

// nextStep is when the next attempt is requested. A deferred delivery comes a little early and waits
// for its reservation in the attempt: durable timers are coarse, and a reservation lasts one second.
func (s *DeliveryState) nextStep() time.Time {
	if s.Deferred() {
		return s.DueAt.Add(-activities.MaxEarly)
	}
	return s.DueAt
}

// passes reports whether the next attempt is passed to any worker.
func (s *DeliveryState) passes() bool { return s.Unowned >= passAfter }
