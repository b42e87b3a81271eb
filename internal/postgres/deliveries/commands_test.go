package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R7: a command has a place of its own, found by the next claim and the next step.
func TestCommandIsFoundByTheNextStep(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	d, c, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel) // before any record
	require.NoError(t, err)
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, int64(1), c.ID)
	require.Equal(t, 1, b.Count(t, "outbox"), "the delivery is still to be started")

	begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "me", time.Minute))
	require.NoError(t, err)
	require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel, Reason: "because"}, begun.Status.Command)

	status, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	require.Equal(t, webhook.CommandCancel, status.Command.Command)

	_, c, err = b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
	require.NoError(t, err, "cancelling twice is no error")
	require.Equal(t, int64(2), c.ID)

	step := storetest.StepOf(start, 2, webhook.StateRetrying)
	step.CommandDone = 1
	status, err = b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, int64(2), status.Command.ID, "the second has not been seen yet")
	step = storetest.StepOf(start, 3, webhook.StateRetrying)
	step.CommandDone = 2
	status, err = b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.CommandNone, status.Command.Command)
}

func TestCommandsAreTakenByState(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, state := range webhook.States() {
		for _, c := range []webhook.Command{webhook.CommandCancel, webhook.CommandRetry, webhook.CommandReplay, webhook.CommandDiscard} {
			start := b.AcceptOne(t)
			_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, state))
			require.NoError(t, err)
			d, _, err := b.CommandOne(t, start.DeliveryID, c)
			if c.TakenIn(state, false) || c == webhook.CommandCancel && state == webhook.StateCancelled { // repeated
				require.NoError(t, err, "%s in %s", c, state)
				continue
			}
			require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "%s in %s", c, state)
			require.Zero(t, d)
			var domain *webhook.Error
			require.ErrorAs(t, err, &domain)
			require.Equal(t, state, domain.State)
		}
	}
}

func TestRestingClearsWhatWasAsked(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, state := range webhook.States() {
		start := b.AcceptOne(t)
		_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
		require.NoError(t, err)
		status, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, state))
		require.NoError(t, err)
		require.Equal(t, state.Open(), status.Command.Command == webhook.CommandCancel, state)
	}
}

func TestReplayOpensARun(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 4, webhook.StateDeadLettered)
	step.Attempts, step.RunAttempts, step.Reason, step.WorkflowID = 3, 3, "max_attempts", "dead/fanout/x/0"
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)

	d, command, err := b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.NoError(t, err)
	require.Equal(t, "dead/fanout/x/0", command.Earlier, "whoever starts the run tells what kept the dead letter")
	require.Equal(t, 2, d.Run)
	require.Equal(t, webhook.StatePending, d.State)
	require.Equal(t, 3, d.Attempts, "numbers go on")
	require.Zero(t, d.RunAttempts, "the budget is fresh")
	require.WithinDuration(t, time.Now().Add(72*time.Hour), d.GiveUpAt, time.Minute)
	stored, err := b.Delivery(t.Context(), "acme", start.DeliveryID)
	require.NoError(t, err)
	require.Equal(t, d.Progress, stored.Progress)

	_, err = b.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	left, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.Len(t, left, 1, "carried to the engine as surely as a new event")
	require.Equal(t, 2, left[0].Run)
	require.Equal(t, "dead/fanout/x/0", left[0].Earlier)

	late := storetest.StepOf(start, 9, webhook.StateDiscarded) // of the run that is over
	status, err := b.RecordStep(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, d.Progress, status.Progress)

	again, err := b.Reopen(t.Context(), start.Ref, 1, "by hand")
	require.NoError(t, err)
	require.Equal(t, d.Progress, again.Progress, "opened once")
}

// A workflow reopens only the dead letter that it has: of its run, and no other state, although the API
// replays from these, too.
func TestReopenOnlyADeadLetterOfItsRun(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, state := range webhook.States() {
		for run, opens := range map[int]bool{1: false, 2: state == webhook.StateDeadLettered, 3: false} {
			start := b.AcceptOne(t)
			start.Run = 2
			step := storetest.StepOf(start, 1, state)
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			status, err := b.Reopen(t.Context(), start.Ref, run, "by hand")
			require.NoError(t, err)
			if opens {
				require.Equal(t, 3, status.Run)
				require.Equal(t, webhook.StatePending, status.State)
			} else {
				require.Equal(t, step.Progress, status.Progress, "%s, run %d", state, run)
			}
		}
	}
}

func TestReplayToADeletedEndpointIsRefused(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateDeadLettered))
	require.NoError(t, err)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))
	_, _, err = b.CommandOne(t, start.DeliveryID, webhook.CommandReplay)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	status, err := b.Reopen(t.Context(), start.Ref, 1, "")
	require.NoError(t, err)
	require.Equal(t, webhook.StateDeadLettered, status.State, "it stays readable")
}

func TestDeletingAnEndpointAsksItsOpenDeliveriesToEnd(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	open, dead := b.AcceptOne(t), b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(open, 1, webhook.StateRetrying))
	require.NoError(t, err)
	_, err = b.RecordStep(t.Context(), storetest.StepOf(dead, 1, webhook.StateDeadLettered))
	require.NoError(t, err)
	require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID))

	asked, err := b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, asked, 1)
	require.Equal(t, open.DeliveryID, asked[0].Delivery.DeliveryID)
	require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandCancel, Reason: webhook.ReasonEndpointDeleted}, asked[0].Command)
	asked, err = b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, asked, "not handed out again for a while")
}

func TestCommandOfAnotherTenantIsNotFound(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, _, err := b.Command(t.Context(), storetest.TestActor(), "other", start.DeliveryID, webhook.PendingCommand{Command: webhook.CommandCancel})
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, err = b.Delivery(t.Context(), "other", start.DeliveryID)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}

// R1: what was left behind is handed out once per while, to one process.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for range 5 {
		b.AcceptOne(t)
	}
	left, err := b.TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.Empty(t, left, "too young: its own process is at it")
	_, err = b.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
	require.NoError(t, err)
	first, err := b.TakeStarts(t.Context(), "test", 3)
	require.NoError(t, err)
	require.Len(t, first, 3)
	second, err := storetest.OpenStore(t, b.Address).TakeStarts(t.Context(), "test", 10)
	require.NoError(t, err)
	require.Len(t, second, 2)
	for _, start := range append(first, second...) {
		require.Equal(t, webhook.DeliveryIDOf(start.EventID, start.EndpointID), start.DeliveryID)
		require.False(t, start.GiveUpAt.IsZero())
	}
	depth, oldest, err := b.OutboxDepth(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, depth)
	require.WithinDuration(t, time.Now(), oldest, time.Minute)
}

func TestListDeliveriesSeesPendingAndRecordedOnce(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	other := b.AddEndpoint(t, "nothing.else")
	var starts []webhook.Start // newest first
	for range 4 {
		starts = append([]webhook.Start{b.AcceptOne(t)}, starts...)
	}
	dead := storetest.StepOf(starts[1], 1, webhook.StateDeadLettered)
	dead.Reason, dead.Attempt = "http_400", storetest.AttemptOf(1, 1, 400)
	_, err := b.RecordStep(t.Context(), dead)
	require.NoError(t, err)
	_, _, err = b.CommandOne(t, starts[2].DeliveryID, webhook.CommandCancel) // a row and an outbox row
	require.NoError(t, err)

	list := func(f webhook.DeliveryFilter, p webhook.Page) (found []webhook.DeliveryID) {
		deliveries, _, err := b.ListDeliveries(t.Context(), "acme", f, p)
		require.NoError(t, err)
		for _, d := range deliveries {
			require.Equal(t, d.EventID.Time(), d.CreatedAt, "the same while pending, recorded and commanded")
			found = append(found, d.DeliveryID)
		}
		return found
	}
	ids := func(at ...int) (wanted []webhook.DeliveryID) {
		for _, i := range at {
			wanted = append(wanted, starts[i].DeliveryID)
		}
		return wanted
	}
	page := webhook.Page{Limit: 10}
	all := list(webhook.DeliveryFilter{}, page)
	require.ElementsMatch(t, ids(0, 1, 2, 3), all, "each once, the one with a row and an outbox row too")
	require.IsDecreasing(t, []string{all[0].String(), all[1].String(), all[2].String(), all[3].String()})
	require.Equal(t, all[2:], list(webhook.DeliveryFilter{}, webhook.Page{Limit: 10, After: all[1]}))
	require.Equal(t, all[:3], list(webhook.DeliveryFilter{}, webhook.Page{Limit: 3}))
	require.Equal(t, ids(1), list(webhook.DeliveryFilter{States: []webhook.State{webhook.StateDeadLettered}}, page))
	require.ElementsMatch(t, ids(0, 2, 3), list(webhook.DeliveryFilter{States: []webhook.State{webhook.StatePending}}, page))
	require.Equal(t, ids(3), list(webhook.DeliveryFilter{EventID: starts[3].EventID}, page))
	require.Len(t, list(webhook.DeliveryFilter{EndpointID: b.Subscriber.ID}, page), 4)
	require.Empty(t, list(webhook.DeliveryFilter{EndpointID: other.ID}, page))
	require.Len(t, list(webhook.DeliveryFilter{EventType: "order.paid"}, page), 4)
	require.Empty(t, list(webhook.DeliveryFilter{EventType: "order.sent"}, page))
	require.Equal(t, ids(1), list(webhook.DeliveryFilter{Reason: "http_400"}, page))
	require.Equal(t, ids(1), list(webhook.DeliveryFilter{Status: 400}, page))
	require.Empty(t, list(webhook.DeliveryFilter{Since: time.Now().Add(time.Minute)}, page))
	require.Len(t, list(webhook.DeliveryFilter{Since: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Minute)}, page), 4)
}

// A held delivery is tried again when its endpoint is active again, not before.
func TestHeldIsRetriedWhenItsEndpointIsActive(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	step := storetest.StepOf(start, 1, webhook.StateHeld)
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	for _, state := range []webhook.EndpointState{webhook.EndpointPaused, webhook.EndpointDisabled} {
		_, err = b.Pool().Exec(t.Context(), `update endpoints set state = $1, version = version + 1`, int16(state))
		require.NoError(t, err)
		b.Endpoints.Cache().ForgetAll()
		for _, c := range []webhook.Command{webhook.CommandRetry, webhook.CommandReschedule} {
			_, _, err = b.CommandOne(t, start.DeliveryID, c)
			require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err), "%s while %s", c, state)
			require.ErrorContains(t, err, state.String())
		}
	}
	_, err = b.Pool().Exec(t.Context(), `update endpoints set state = 0, version = version + 1`)
	require.NoError(t, err)
	b.Endpoints.Cache().ForgetAll()
	_, c, err := b.CommandOne(t, start.DeliveryID, webhook.CommandRetry)
	require.NoError(t, err)
	require.Equal(t, int64(1), c.ID)
}

// A new time lies before the give-up time, except before the first attempt, which
// moves both.
func TestRescheduleIsBoundedByTheGiveUpTime(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, test := range []struct {
		state webhook.State
		after time.Duration // of the give-up time
		taken bool
	}{
		{webhook.StateRetrying, 0, true},
		{webhook.StateRetrying, time.Microsecond, false},
		{webhook.StateHeld, time.Microsecond, false},
		{webhook.StatePending, 10 * 24 * time.Hour, true},
	} {
		start := b.AcceptOne(t)
		step := storetest.StepOf(start, 1, test.state)
		step.DueAt = start.CreatedAt.Add(time.Hour)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		asked := webhook.PendingCommand{Command: webhook.CommandReschedule, At: step.GiveUpAt.Add(test.after)}
		_, c, err := b.Command(t.Context(), storetest.TestActor(), "acme", start.DeliveryID, asked)
		if !test.taken {
			require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err), test)
			require.ErrorContains(t, err, "at")
			continue
		}
		require.NoError(t, err, test)
		require.Equal(t, asked.At, c.At)
		commanded, err := b.DeliveryStatus(t.Context(), start.Ref)
		require.NoError(t, err)
		require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandReschedule, At: asked.At}, commanded.Command)
	}
}

// A command that is not handled is signalled again after RelayAfter, and each time after twice as long, up to half an hour. A new command starts
// again at RelayAfter.
func TestCommandsAreSignalledLessAndLessOften(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	ask := func() {
		t.Helper()
		_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandRetry)
		require.NoError(t, err)
	}
	signalled := func(after time.Duration) (times []int) {
		t.Helper()
		b.Exec(t, `update deliveries set commanded_at = commanded_at - $1::bigint * interval '1 microsecond'`, after.Microseconds())
		found, err := b.TakeCommands(t.Context(), 10)
		require.NoError(t, err)
		for _, c := range found {
			require.Equal(t, webhook.CommandRetry, c.Command.Command)
			times = append(times, c.Signalled)
		}
		return times
	}
	const almost = 5 * time.Second // the test takes time, too
	for range 2 {
		ask()
		pause, day, n := deliveries.RelayAfter, time.Duration(0), 0
		for day < 24*time.Hour {
			require.Empty(t, signalled(pause-almost))
			require.Equal(t, []int{n + 1}, signalled(almost))
			day += pause
			n++
			if n <= deliveries.MaxSignalDoublings {
				pause *= 2
			}
		}
		require.Equal(t, 2048*time.Second, pause)
		require.Less(t, n, 60, "in a day")
	}
}

// The partition of today is made while a command makes the row of a delivery that has none, as on the first start of
// an installation: the command is stored all the same.
func TestACommandWhileAPartitionIsMadeIsStored(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	storetest.AttachPartition(t, b.Stores, "deliveries", func() error {
		_, _, err := b.CommandOne(t, start.DeliveryID, webhook.CommandCancel)
		return err
	})
	require.Equal(t, []string{"the_day"}, storetest.Query[string](t, b.Stores, `select tableoid::regclass::text from deliveries`))
}

// An event is cancelled in all its open deliveries, also in those that only have an outbox row.
func TestCancelEvent(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for range 3 {
		b.AddEndpoint(t, "order.*")
	}
	a, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 4)
	ended := b.EndIn(t, a.Deliveries[0], webhook.StateDelivered)
	other, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)

	cancelled, err := b.CancelEvent(t.Context(), storetest.TestActor(), "acme", a.Event.ID, "a mistake")
	require.NoError(t, err)
	require.Len(t, cancelled, 3)
	var ids []webhook.DeliveryID
	for _, c := range cancelled {
		require.NotEqual(t, ended.DeliveryID, c.Delivery.DeliveryID)
		require.NotZero(t, c.Command.ID)
		ids = append(ids, c.Delivery.DeliveryID)
	}
	require.Len(t, other.Deliveries, 4)
	require.Equal(t, 3, b.CountOf(t, "deliveries where command <> 0"), "and not of another event")
	commanded, err := b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, commanded, "they are signalled at once; the relay takes them later")
	b.Exec(t, `update deliveries set commanded_at = now() - interval '1 hour' where command <> 0`)
	commanded, err = b.TakeCommands(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, commanded, 3)
	for _, c := range commanded {
		require.Contains(t, ids, c.Delivery.DeliveryID)
		require.Equal(t, webhook.CommandCancel, c.Command.Command)
		require.Equal(t, "a mistake", c.Command.Reason)
	}
	again, err := b.CancelEvent(t.Context(), storetest.TestActor(), "acme", a.Event.ID, "another reason")
	require.NoError(t, err)
	require.Empty(t, again, "a pending cancel stays as it is")
	require.Equal(t, 2, storetest.Audits(t, b.Stores, "event.cancel"))
	_, err = b.CancelEvent(t.Context(), storetest.TestActor(), "other", a.Event.ID, "")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}
