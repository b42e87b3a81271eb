package webhook_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// The cells of the command table in docs/delivery-states.md.
const (
	never     = "–"
	always    = "yes"
	scheduled = "with `deliver_at`, or deferred"
	active    = "once its endpoint is active again"
	repeated  = "repeated" // 202 without a new command
)

// commandTable has the accepted commands by state; a missing cell means never.
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
	}
}

// TestTakenIn checks every command × every state × scheduled or not, including values that
// are not declared.
func TestTakenIn(t *testing.T) {
	t.Parallel()

	table := commandTable()
	for c := range webhook.Command(255) {
		for s := range webhook.State(255) {
			for _, waits := range []bool{false, true} {
				want := false
				switch table[c][s] {
				case always, active: // TakenIn does not check the endpoint's state
					want = true
				case scheduled:
					want = waits
				case repeated, never, "": // a repeated command is not stored again
				}
				require.Equal(t, want, c.TakenIn(s, waits), "%s, %s, scheduled: %t", c, s, waits)
			}
		}
	}
}

// TestTakenInIsDocumented compares the table of the documentation with the one here.
func TestTakenInIsDocumented(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/delivery-states.md")
	require.NoError(t, err)
	table := commandTable()
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

// cellsOf splits a table row into cells and removes footnotes, and the code marks of a cell
// that is nothing but code.
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
