package workflows

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxRefusals bounds the ignored signals that a workflow keeps, in all its runs. Each is in the audit
	// log once, so a flood of signals is a handful of entries.
	maxRefusals = 5
	// longestName bounds the name of a signal that is kept, in runes.
	longestName = 60
)

// Refusal is a signal that was sent by hand and ignored.
type Refusal struct {
	Signal string    `json:"signal"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`    // of the first one
	Times  int       `json:"times"` // so often

	unaudited bool // the audit log does not have it yet
}

// refusals are the ignored signals of a workflow: kinds of them, each with a count.
type refusals []Refusal

// add notes an ignored signal.
func (r *refusals) add(ctx workflow.Context, signal, why string) {
	signal = shortName(signal)
	for i := range *r {
		if (*r)[i].Signal == signal && (*r)[i].Why == why {
			(*r)[i].Times++
			return
		}
	}
	if len(*r) < maxRefusals {
		*r = append(*r, Refusal{Signal: signal, Why: why, At: workflow.Now(ctx), Times: 1, unaudited: true})
	}
}

// shortName makes the name of a signal fit for the store and for the Web UI's markdown.
func shortName(name string) string {
	short := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '`' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	if runes := []rune(short); len(runes) > longestName {
		short = string(runes[:longestName]) + "…"
	}
	return short
}

// audit writes new refusals to the audit log. It reports whether there were any: then the workflow has
// waited, and more signals may have come. one is a delivery of a shared workflow, by which the store finds out whether the workflow is
// the tenant's; others are found by their subject. If the store is unavailable, only the details have them.
func (r *refusals) audit(ctx workflow.Context, tenantID, subject string, one webhook.DeliveryID) bool {
	in := webhook.RefusedSignals{TenantID: tenantID, Subject: subject, DeliveryID: one, WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID}
	for i := range *r {
		if refused := &(*r)[i]; refused.unaudited {
			refused.unaudited = false
			in.Signals = append(in.Signals, webhook.RefusedSignal{Name: refused.Signal, Why: refused.Why})
		}
	}
	if len(in.Signals) == 0 {
		return false
	}
	disconnected, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	disconnected = workflow.WithLocalActivityOptions(disconnected, workflow.LocalActivityOptions{
		StartToCloseTimeout: attemptTimeout, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 3},
		Summary: "ignored signals, to the audit log",
	})
	if err := workflow.ExecuteLocalActivity(disconnected, acts.RefusedSignals.RecordRefusedSignals, in).Get(disconnected, nil); err != nil {
		workflow.GetLogger(ctx).Warn("ignored signals are not in the audit log", "subject", subject, "error", message(err))
	}
	return true
}

// details lists the refusals, in markdown; "" without any.
func (r *refusals) details() string {
	if len(*r) == 0 {
		return ""
	}
	lines := []string{"\nSignals that were ignored:\n\n"}
	for _, refused := range *r {
		times := ""
		if refused.Times > 1 {
			times = fmt.Sprintf(", %d times", refused.Times)
		}
		lines = append(lines, fmt.Sprintf("- %#q at %s%s: %s\n", refused.Signal, explain.At(refused.At), times, refused.Why))
	}
	return strings.Join(lines, "")
}
