package webhook_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The cells of the command table, as 10-retry.md has it and docs/delivery-states.md
// shows it.
const (
	never     = "–"
	always    = "yes"
	scheduled = "with `deliver_at`, or deferred"
	active    = "once its endpoint is active again"
	repeated  = "repeated" // 202 without anything being asked of anybody
)

// commandTable is which command is taken in which state; what is not there is never.
func commandTable() map[webhook.Command]map[webhook.State]string {
	again := map[webhook.State]string{
		webhook.StatePending: scheduled, webhook.StateRetrying: always, webhook.StateHeld: active,
	}
	return map[webhook.Command]map[webhook.State]string{
		webhook.CommandCancel: {
			webhook.StatePending: always, webhook.StateRetrying: always, webhook.StateHeld: always, webhook.StateCancelled: repeated,
		},
		webhook.CommandRetry:      again,
		webhook.CommandReschedule: again,
		webhook.CommandReplay: {
			webhook.StateDelivered: always, webhook.StateDeadLettered: always, webhook.StateCancelled: always, webhook.StateDiscarded: always,
		},
		webhook.CommandDiscard: {webhook.StateDeadLettered: always},
		webhook.CommandRelease: {webhook.StateHeld: always}, // no command of people: resuming an endpoint brings it about
	}
}

// TestTakenIn goes through all of the space: every command × every state × scheduled or
// not, those that do not exist included.
func TestTakenIn(t *testing.T) {
	t.Parallel()

	table := commandTable()
	for c := range webhook.Command(255) {
		for s := range webhook.State(255) {
			for _, waits := range []bool{false, true} {
				want := false
				switch table[c][s] {
				case always, active: // whether the endpoint is active is for whoever knows it
					want = true
				case scheduled:
					want = waits
				case repeated, never, "": // for the record, repeating needs no word to the workflow
				}
				require.Equal(t, want, c.TakenIn(s, waits), "%s, %s, scheduled: %t", c, s, waits)
			}
		}
	}
}

// TestTakenInIsDocumented holds the table of the documentation against the one here.
func TestTakenInIsDocumented(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/delivery-states.md")
	require.NoError(t, err)
	table := commandTable()
	delete(table, webhook.CommandRelease)
	var states []webhook.State
	documented := 0
	for line := range strings.Lines(string(page)) {
		cells := cellsOf(line)
		if len(cells) == 0 {
			continue
		}
		if cells[0] == "command" {
			for _, name := range cells[1:] {
				state, known := webhook.ParseState(name)
				require.True(t, known, "there is no state %q", name)
				states = append(states, state)
			}
			require.ElementsMatch(t, webhook.States(), states, "each state has its column")
			continue
		}
		var command webhook.Command
		if len(states) == 0 || cells[0] == "" || command.UnmarshalText([]byte(cells[0])) != nil {
			continue
		}
		documented++
		require.Len(t, cells, len(states)+1, line)
		for i, cell := range cells[1:] {
			want, taken := table[command][states[i]]
			if !taken {
				want = never
			}
			require.Equal(t, want, cell, "%s in %s", command, states[i])
		}
	}
	require.Len(t, table, documented, "each command has its row")
}

// cellsOf splits a row of a table, without footnotes and, where a cell is nothing else,
// without the marks of code.
func cellsOf(line string) []string {
	line = strings.TrimSpace(strings.ReplaceAll(line, "¹", ""))
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		cell = strings.TrimSpace(cell)
		if whole := strings.Trim(cell, "`"); len(whole) == len(cell)-2 && strings.HasPrefix(cell, "`") {
			cell = whole
		}
		cells = append(cells, cell)
	}
	return cells
}
