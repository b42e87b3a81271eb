package explain

import (
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// Why a signal that was sent to a workflow by hand was ignored: what comes after "replay was ignored: ".

// UnknownSignal is why a signal of this name was ignored. known are those that the workflow takes.
func UnknownSignal(known []string) string {
	return "this workflow takes only " + list(known)
}

// UnreadableInput is why a signal was ignored whose input could not be read.
const UnreadableInput = "its input is neither a string nor an object with the fields of this signal"

// InputWithoutTime is why a reschedule was ignored.
const InputWithoutTime = `its input has no time; an example is "2026-02-01T09:30:00Z"`

// OtherDelivery is why a signal was ignored that names a delivery which the workflow does not have.
const OtherDelivery = "its input names a delivery that is not in this workflow, or no longer"

// SeveralTenants is why a signal was ignored that names no delivery.
const SeveralTenants = `the workflow has deliveries of several tenants; name one: {"delivery_id": "dlv_…"}`

// OnlyForDeadLetters is why a replay or a discard was ignored.
func OnlyForDeadLetters(c webhook.Command, s webhook.State) string {
	words, instead := "replayed by a signal", "; retry-now makes the next attempt at once"
	if c == webhook.CommandDiscard {
		words, instead = "discarded", "; cancel ends an open delivery"
	}
	if !s.Open() {
		instead = ""
	}
	return "the delivery is " + s.String() + ", and only a dead letter can be " + words + instead
}

// OnlyForOpen is why a cancel, a retry-now or a reschedule was ignored.
func OnlyForOpen(s webhook.State) string {
	return "the delivery is " + s.String() + " and has no next attempt; a dead letter takes replay and discard"
}

// OtherRun says that another workflow has the delivery, because another run of it was opened. The id is "" if it is not known, or the run has none: it is held.
func OtherRun(run int, workflowID string) string {
	text := "Run " + strconv.Itoa(run) + " of the delivery "
	if workflowID == "" {
		return text + "was opened."
	}
	return text + "is in the workflow " + workflowID + "."
}

// list lists names: "cancel, retry-now and reschedule".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
