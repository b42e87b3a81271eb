package workflows_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/workflows"
)

// The histories in testdata are real ones, one file for each run of a chain, made
// with
//
//	cd standalone && go test ./record -run TestRecord -update
//
// or, one alone, with -run 'TestRecord/^shared-retry$'.
//
// A change of the workflows that breaks one of them breaks deliveries that are
// under way: keep the old way behind workflow.GetVersion, and record a new history
// under a new name. Do not record the old ones again once they are released.
func TestRecordedHistoriesReplay(t *testing.T) {
	t.Parallel()
	for name, history := range histories(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A shared workflow compares its id with the store's.
			id := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId()
			require.NoError(t, replayer().ReplayWorkflowHistoryWithOptions(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), history,
				sdk.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: id}}))
		})
	}
}

func replayer() sdk.WorkflowReplayer {
	r := sdk.NewWorkflowReplayer()
	r.RegisterWorkflow(workflows.DeliveryWorkflow)
	r.RegisterWorkflow(workflows.DeadLetterWorkflow)
	r.RegisterWorkflow(workflows.ReplayWorkflow)
	r.RegisterWorkflow(workflows.TenantDeletionWorkflow)
	return r
}

func histories(t *testing.T) map[string]*historypb.History {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	found := make(map[string]*historypb.History, len(paths))
	for _, path := range paths {
		file, err := os.Open(path)
		require.NoError(t, err)
		found[strings.TrimSuffix(filepath.Base(path), ".json")], err = client.HistoryFromJSON(file, client.HistoryJSONOptions{})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	return found
}

// Each branch has a history, which really takes it.
func TestEveryBranchIsRecorded(t *testing.T) {
	t.Parallel()
	const (
		completed = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
		continued = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
		timer     = enumspb.EVENT_TYPE_TIMER_FIRED
		stopped   = enumspb.EVENT_TYPE_TIMER_CANCELED
		activity  = enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
		signalled = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
		cancelled = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
		marker    = enumspb.EVENT_TYPE_MARKER_RECORDED
		failed    = enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED
	)
	all := histories(t)
	for name, events := range map[string][]enumspb.EventType{
		"success":                     {marker, completed},
		"retry":                       {timer, timer, completed},
		"retry-after":                 {timer, completed},
		"exhausted-1":                 {timer, timer, continued},
		"slow":                        {marker, timer, marker, completed},
		"slow-retry":                  {marker, timer, marker, marker, completed},
		"cancel":                      {signalled, stopped, marker, completed},
		"cancel-while-slow":           {marker, signalled, stopped, timer, marker, marker, completed},
		"retry-while-slow":            {marker, timer, marker, timer, marker, marker, timer, marker, completed},
		"cancel-from-the-record":      {timer, marker, marker, completed},
		"cancelled-workflow":          {cancelled, stopped, marker, completed},
		"retry-now":                   {signalled, stopped, marker, completed},
		"retry-now-without-input":     {signalled, stopped, marker, completed},
		"ignored-signal":              {signalled, stopped, marker, signalled, stopped, marker, completed},
		"endpoint-deleted":            {marker, completed},
		"replay-1":                    {marker, continued},
		"replay-2":                    {signalled, stopped, completed},
		"replay-3":                    {marker, completed},
		"replay-by-hand-2":            {signalled, stopped, marker, completed},
		"discard-2":                   {signalled, stopped, marker, completed},
		"discard-by-cancellation-2":   {cancelled, stopped, marker, completed},
		"own-fault":                   {marker, timer, timer, completed},
		"deliver-at":                  {timer, marker, completed},
		"busy":                        {timer, marker, timer, marker, completed},
		"replay-after-delivered-1":    {marker, completed},
		"replay-after-delivered-2":    {marker, completed},
		"dead-letter-that-is-kept-2":  {},
		"held-released-1":             {timer, marker, completed},
		"held-released-2":             {marker, completed},
		"held-retried-2":              {marker, completed},
		"held-rescheduled-2":          {marker, timer, marker, completed},
		"held-cancelled-2":            {marker, completed},
		"held-expired-2":              {marker, continued},
		"reschedule":                  {signalled, stopped, marker, timer, marker, completed},
		"reschedule-by-hand":          {signalled, stopped, marker, timer, marker, completed},
		"reschedule-deliver-at":       {signalled, stopped, marker, timer, marker, completed},
		"shared-success":              {marker, completed},
		"shared-retry":                {marker, timer, marker, timer, marker, completed},
		"shared-dead-letter":          {marker, marker, completed},
		"shared-signalled-at-its-end": {failed, signalled, marker, completed}, // R3
		"shared-busy":                 {marker, timer, marker, marker, completed},
		"shared-own-fault":            {marker, timer, marker, timer, marker, completed},
		"shared-asked-about-one":      {signalled, stopped, marker, timer, marker, completed},
		"shared-cancelled-workflow-1": {cancelled, stopped, continued},
		"shared-cancelled-workflow-2": {timer, marker, completed},
		"shared-taken-over":           {marker, timer, marker, completed},
		"shared-stays":                {marker, timer, marker, timer, marker, timer, marker, completed},
		"shared-stays-cancelled":      {marker, signalled, stopped, timer, marker, timer, marker, marker, completed},
		"shared-stays-deleted":        {marker, signalled, stopped, timer, marker, timer, marker, marker, completed},
		"dead-letters-that-are-kept":  {marker},
		"dead-letters-with-commands":  {marker, signalled, marker, signalled, signalled, signalled, marker, completed},
		"deferred":                    {marker, timer, marker, completed},
		"deferred-expired-1":          {marker, marker, continued}, // so soon that the attempt waits for it
		"shared-deferred":             {marker, timer, marker, timer, marker, completed},
		"shared-held":                 {marker, completed},
		"shared-released":             {marker, completed},
		"paced":                       {marker, marker, timer, marker, marker, completed},
		"paced-by-api":                {marker, signalled, marker, marker, signalled, marker, marker, signalled, marker, marker, completed},
		"paced-by-hand":               {signalled, marker, signalled, marker, signalled, marker, completed},
		"paced-cancelled-workflow":    {cancelled, stopped, marker, completed},
		"paced-pauses-itself":         {marker, timer, marker, signalled, marker, marker, completed},
		"paced-own-fault":             {marker, timer, timer, marker, completed},
		"paced-lost":                  {marker, marker, signalled, marker, marker, completed},
		"tenant-deletion":             {activity, activity, timer, activity, activity, activity, completed},
	} {
		history, recorded := all[name]
		require.True(t, recorded, name)
		for _, event := range history.GetEvents() {
			if len(events) > 0 && event.GetEventType() == events[0] {
				events = events[1:]
			}
		}
		require.Empty(t, events, "%s lacks these", name)
	}
}

// In this history a shared workflow keeps a member whose request is under way, and checks it again.
func TestARunningRequestIsRecorded(t *testing.T) {
	t.Parallel()
	all := histories(t)
	for name, looks := range map[string]int{"shared-stays": 2, "shared-stays-cancelled": 2, "shared-stays-deleted": 2, "slow": 1} {
		for _, event := range all[name].GetEvents() {
			for _, p := range event.GetMarkerRecordedEventAttributes().GetDetails()["result"].GetPayloads() {
				if strings.Contains(string(p.GetData()), `"check_at":`) {
					looks--
				}
			}
		}
		require.Zero(t, looks, name)
	}
}

// Nothing of the machine that recorded them, and nothing that must not be in a
// history, is in the files.
func TestRecordedHistoriesKeepSecrets(t *testing.T) {
	t.Parallel()
	for name, history := range histories(t) {
		var text strings.Builder
		text.WriteString(history.String())
		for _, event := range history.GetEvents() {
			write := func(payloads *commonpb.Payloads) {
				for _, p := range payloads.GetPayloads() {
					text.Write(p.GetData())
				}
			}
			for _, details := range event.GetMarkerRecordedEventAttributes().GetDetails() {
				write(details)
			}
			write(event.GetWorkflowExecutionStartedEventAttributes().GetInput())
			write(event.GetWorkflowExecutionSignaledEventAttributes().GetInput())
			write(event.GetActivityTaskScheduledEventAttributes().GetInput())
			write(event.GetActivityTaskCompletedEventAttributes().GetResult())
		}
		for _, secret := range []string{"canary", "whsec_", "http://", "127.0.0.1", "localhost", "/tmp", "/root", "/home"} {
			require.NotContains(t, text.String(), secret, name)
		}
	}
}
