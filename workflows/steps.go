package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
)

// a names the activities for the compiler; the worker has the real ones.
var a *activities.Activities //nolint:gochecknoglobals // only its method values are used: type-checked references

const (
	attemptTimeout = 10 * time.Second // of a local activity; it returns after about 1 s
	// joinTimeout is an attempt's deadline twice, one of another process that died
	// and one of our own, and the time to record it.
	joinTimeout = 2*webhook.MaxTimeout + 30*time.Second
	// firstTaskLength is the history when the first task begins: workflow started, task
	// scheduled, task started. A task that has to be repeated finds more.
	firstTaskLength  = 3
	heartbeatTimeout = 4 * activities.HeartbeatEvery
	longestPause     = time.Minute // between tries of a step of our own
)

// makeAttempt makes one attempt: as a local activity, and when the receiver is
// slow, joined by an ordinary one. Both run on a disconnected context: a cancel
// never aborts a request that is under way.
func makeAttempt(ctx workflow.Context, in DeliveryInput) (activities.AttemptResult, error) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	asked := activities.AttemptInput{
		Ref: in.Ref, Progress: in.Progress, NotBefore: in.NotBefore, CommandDone: in.CommandDone, Probe: in.Probe,
		// Of what was handed over another workflow may have made the first attempt.
		FirstTask: !in.HandedOver && workflow.GetInfo(ctx).GetCurrentHistoryLength() <= firstTaskLength,
	}
	summary := fmt.Sprintf("attempt %d", in.Attempts+1)
	if in.Faults > 0 {
		summary += ", after a fault of our own"
	}
	var result activities.AttemptResult
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
	err := workflow.ExecuteLocalActivity(local, a.Attempt, asked).Get(ctx, &result)
	elsewhere := in.UnderWay && !result.BusyUntil.IsZero() // begun by the shared workflow, in another process
	if err != nil || !result.Running && !elsewhere {
		return result, err
	}
	joined := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		// Past the give-up time our own failures end it, which the workflow has to write.
		ScheduleToCloseTimeout: max(in.GiveUpAt.Sub(workflow.Now(ctx)), 0) + joinTimeout,
		StartToCloseTimeout:    joinTimeout, HeartbeatTimeout: heartbeatTimeout, Summary: summary + ": the receiver is slow, waiting for its answer",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: longestPause},
	})
	result = activities.AttemptResult{}
	err = workflow.ExecuteActivity(joined, a.Join, asked).Get(ctx, &result)
	return result, err
}

// What keeps a step from being recorded. Either ends the run.
var (
	errGone        = errors.New("there is no such delivery any more")
	errLongHistory = errors.New("the history has become long")
)

// recordStep writes the end of a delivery, as often as it takes. While another
// process has the right to send, the record refuses it: it may be delivering.
func recordStep(ctx workflow.Context, step webhook.Step, why string) (webhook.DeliveryStatus, error) {
	return persist(ctx, why, func(ctx workflow.Context) (webhook.DeliveryStatus, error) { return recordOnce(ctx, step, why) })
}

// persist repeats what is to be recorded until it is, or errGone, or errLongHistory.
func persist(ctx workflow.Context, why string, try func(workflow.Context) (webhook.DeliveryStatus, error)) (webhook.DeliveryStatus, error) {
	for pause := time.Second; ; {
		standing, err := try(ctx)
		switch {
		case isGone(err):
			return standing, errGone
		case err != nil:
			sleep(ctx, pause, "the record cannot be reached: "+why)
			pause = min(2*pause, longestPause)
		case standing.State.Open() && !standing.OwnedUntil.IsZero():
			sleep(ctx, max(standing.OwnedUntil.Sub(workflow.Now(ctx)), clockSlack), "another process is making an attempt: "+why)
		default:
			return standing, nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return standing, errLongHistory
		}
	}
}

func isGone(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == activities.ErrorGone
}

// recordOnce tries to write a step.
func recordOnce(ctx workflow.Context, step webhook.Step, why string) (webhook.DeliveryStatus, error) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	var standing webhook.DeliveryStatus
	err := workflow.ExecuteLocalActivity(localOptions(ctx, why), a.RecordStep, step).Get(ctx, &standing)
	return standing, err
}

// reopen opens the next run of a dead letter, as often as it takes.
func reopen(ctx workflow.Context, ref webhook.Ref, reason string) (webhook.DeliveryStatus, error) {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	return persist(disconnected, "replay", func(ctx workflow.Context) (standing webhook.DeliveryStatus, err error) {
		err = workflow.ExecuteLocalActivity(localOptions(ctx, "replay"), a.Reopen, activities.Reopening{Ref: ref, Reason: reason}).Get(ctx, &standing)
		return standing, err
	})
}

func localOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

// keepFor is how long dead letters are kept, as the worker's settings say now.
func keepFor(ctx workflow.Context) time.Duration {
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	for {
		var kept time.Duration
		if err := workflow.ExecuteLocalActivity(localOptions(disconnected, "retention"), a.KeepFor).Get(disconnected, &kept); err == nil {
			return kept
		}
		sleep(ctx, time.Second, "retention")
	}
}

// sleep waits whether or not the workflow has been cancelled.
func sleep(ctx workflow.Context, d time.Duration, summary string) {
	ctx, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	_ = workflow.NewTimerWithOptions(ctx, d, workflow.TimerOptions{Summary: summary}).Get(ctx, nil) // a disconnected timer is not cancelled
}

// showState sets the search attribute.
func showState(ctx workflow.Context, s webhook.State) {
	err := workflow.UpsertTypedSearchAttributes(ctx, temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState).ValueSet(s.String()))
	if err != nil {
		workflow.GetLogger(ctx).Warn("the search attribute was not set", "error", err)
	}
}

// details is where a delivery stands, in markdown, for the Web UI.
func details(ref webhook.Ref, p webhook.Progress, told, lastError string) string {
	// Put together by +: workflowcheck takes fmt.Fprintf for non-deterministic.
	text := fmt.Sprintf("**%s** · %#q to %#q\n\n- attempts: %d", p.State, ref.EventType, ref.EndpointID.String(), p.Attempts)
	if p.Run > 1 {
		text += fmt.Sprintf(" (%d in run %d)", p.RunAttempts, p.Run)
	}
	text += "\n" + line("last answer", told)
	if !p.State.Open() {
		return text + line("reason", p.Reason) + line("our own fault", lastError)
	}
	if p.Reason != "" {
		text += line("waits", plain(p.Reason))
	}
	text += line("our own fault", lastError)
	if !p.DueAt.IsZero() {
		text += line("next attempt", p.DueAt.UTC().Format(time.RFC3339))
	}
	return text + line("given up at", p.GiveUpAt.UTC().Format(time.RFC3339))
}

// plain is a reason of the record in words.
func plain(reason string) string {
	switch reason {
	case webhook.ReasonPaused:
		return "its endpoint is paused"
	case webhook.ReasonDisabled:
		return "its endpoint is disabled"
	case webhook.ReasonBacklog:
		return "many are waiting before it"
	case webhook.ReasonCircuitOpen:
		return "the receiver is in trouble and is given a rest"
	case webhook.ReasonRetryAfter, webhook.ReasonRateLimitHint:
		return "the receiver asked for a pause"
	case webhook.ReasonRate:
		return "the endpoint's rate is reached"
	case webhook.ReasonInFlight:
		return "the endpoint is busy"
	case webhook.ReasonHost:
		return "the endpoint's host is busy"
	case webhook.ReasonInternal:
		return "a fault of our own keeps its endpoint from being sent to"
	case webhook.ReasonCapacity:
		return "too many slow receivers are being waited for"
	case "":
		return "its endpoint was not active"
	}
	return reason
}

func line(name, value string) string {
	if value == "" {
		return ""
	}
	return "- " + name + ": " + value + "\n"
}

// words is an error's innermost message, without the SDK's wrapping.
func words(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}

// decode reads a signal's input: an Asked, or a plain text, which is taken as the
// reason, or nothing.
func decode(raw converter.RawValue) Asked {
	payload := raw.Payload()
	if payload == nil {
		return Asked{}
	}
	var asked Asked
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &asked); err != nil {
		asked = Asked{}
		if err := converter.GetDefaultDataConverter().FromPayload(payload, &asked.Reason); err != nil {
			return Asked{unreadable: true}
		}
	}
	asked.Reason = storable(asked.Reason)
	return asked
}

// longestReason bounds the reason of a signal sent by hand, in bytes.
const longestReason = 1000

// storable makes a text one that the record takes: a step that PostgreSQL refuses
// (a NUL, broken UTF-8) would be repeated for ever.
func storable(text string) string {
	text = strings.ReplaceAll(text[:min(len(text), longestReason)], "\x00", "")
	return strings.ToValidUTF8(text, "")
}
