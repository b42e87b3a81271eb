package e2e_test

import (
	"context"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
)

// detailsOf are the details that the Web UI shows of the newest run of a workflow.
func detailsOf(ctx context.Context, engine client.Client, workflow string) (string, error) {
	answer, err := engine.QueryWorkflow(ctx, workflow, "", "__temporal_workflow_metadata")
	if err != nil {
		return "", err
	}
	var metadata sdkpb.WorkflowMetadata
	err = answer.Get(&metadata)
	return metadata.GetCurrentDetails(), err
}

var (
	anyClock = regexp.MustCompile(clock)
	distance = regexp.MustCompile(`, (in )?(less than 1 ms|[0-9.]+ (ms|s|min|h|days))( ago)?\b`)
)

// lasting is what a workflow can say of a sentence, too: without the host of the endpoint, and without how far
// away a time is from when it is read. How long something took is left out, because it is rounded.
func lasting(text string) string {
	text = strings.ReplaceAll(text, " at 127.0.0.1", "")
	text = strings.ReplaceAll(text, "host name nowhere.invalid", "host name of the endpoint")
	text = distance.ReplaceAllString(anyClock.ReplaceAllString(text, "T"), "")
	return timeless(text)
}

// knownToWorkflows reports the situations of which a workflow knows as much as the API: of a wait for admission,
// say, it knows no more than that.
func knownToWorkflows(code string) bool {
	for _, prefix := range []string{"retry_", "refused", "exhausted", "expired", "delivered", "discarded", "scheduled"} {
		if strings.HasPrefix(code, prefix) {
			return true
		}
	}
	return false
}

// codeIn is what the details of a workflow say of a code: it does not know what is observed of an endpoint, which may be the deeper
// cause of a wait.
func codeIn(code string) string {
	if strings.HasPrefix(code, "waits_") {
		return "waits_"
	}
	return code + "\n"
}

// requireDetails waits until the Web UI says of a delivery what the API says, in the workflow that the explanation
// names. A held delivery has none, and a cluster's Temporal has no Web UI in these tests.
func (b *bundle) requireDetails(id string, got explained) {
	b.t.Helper()
	if _, elsewhere := b.in.env["TEMPORAL_NAMESPACE"]; elsewhere {
		return
	}
	ctx, engine := contextFor(b.t, patience), b.in.temporal(b.t)
	first, _, _ := strings.Cut(lasting(got.Summary), "; ")
	inAnother := strings.Replace(first[:max(strings.LastIndex(first, ":"), 0)], "Delivered at T", "Delivered", 1) // the workflow has made no attempt
	eventually(ctx, b.t, func() string {
		d := b.delivery(id)
		if d.WorkflowID == "" {
			require.Contains(b.t, []string{"held", "cancelled"}, d.State)
			return ""
		}
		require.Contains(b.t, text(got.Explanation.Workflow), "Its workflow is "+d.WorkflowID)
		said, err := detailsOf(ctx, engine, d.WorkflowID)
		switch {
		case err != nil: // it may not have been started yet
			return err.Error()
		case listsSeveral.MatchString(said):
			return b.missingOfMember(d, said, got.Explanation.Code, first)
		case !strings.HasPrefix(said, "**"+d.State+"** · `"+d.EventType+"` to `"+d.EndpointID+"`\n\n"),
			!strings.Contains(said, "- delivery: "+d.ID+"\n"), !strings.Contains(said, "- code: "+codeIn(got.Explanation.Code)),
			knownToWorkflows(got.Explanation.Code) && !strings.Contains(lasting(said), first) &&
				(d.State != "delivered" || !strings.Contains(lasting(said), inAnother+".\n")):
			return "the details of " + d.WorkflowID + " do not say " + got.Explanation.Code + ", " + first + ": " + said
		}
		return ""
	})
}

// listsSeveral is how the details of a workflow of several deliveries begin.
var listsSeveral = regexp.MustCompile(`^\*\*\d+ deliver(y|ies)\*\*`)

// missingOfMember is what the details of a workflow of several deliveries do not say of one.
func (b *bundle) missingOfMember(d delivery, said, code, first string) string {
	_, line, found := strings.Cut(said, "\n- `"+d.ID+"` · `"+d.EventType+"` to `"+d.EndpointID+"`: ")
	line, _, _ = strings.Cut(line, "\n")
	switch {
	case !found:
		return "the details of " + d.WorkflowID + " do not list " + d.ID + ": " + said
	case d.State == "delivered":
		first = "delivered with attempt "
	case d.State == "discarded", !knownToWorkflows(code):
		first = d.State
	}
	if !strings.Contains(lasting(line), first) {
		return "the details of " + d.WorkflowID + " do not say " + first + ": " + line
	}
	return ""
}
