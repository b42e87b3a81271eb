package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/retry"
)

// The part of the page between these lines is generated.
const (
	pageBegin = "<!-- presets: made by go generate ./tools/retryplot, do not edit -->\n"
	pageEnd   = "<!-- end of presets -->\n"
)

// page returns the page with its generated part replaced. It is an error if the page lacks
// the lines around that part.
func page(old string) (string, error) {
	before, rest, begins := strings.Cut(old, pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", errors.New("the lines around the generated part are missing")
	}
	return before + pageBegin + tables() + pictures() + pageEnd + after, nil
}

// tables lists the presets, and when each of their attempts starts.
func tables() string {
	var text strings.Builder
	text.WriteString("\n| preset | delays before jitter | jitter | attempts | given up after |\n|---|---|---|---|---|\n")
	for _, preset := range retry.Presets() {
		p := preset.Policy
		fmt.Fprintf(&text, "| `%s` | %s | %s | %d | %s |\n", preset.Name, delays(p), jitter(p), p.MaxAttempts, retry.FormatDuration(p.GiveUpAfter))
	}
	text.WriteString("\nWhen each attempt starts, counted from the first, without jitter and if every answer comes at once:\n\n")
	text.WriteString(startTable(retry.Preview))
	text.WriteString("\n\\* This attempt is made only if jitter makes earlier delays short; otherwise the give-up time comes first.\n")
	text.WriteString("\nThe same if every outcome is [ambiguous](#limits): a 404 (except with `standard-webhooks`), or `token_refused`:\n\n")
	text.WriteString(startTable(retry.PreviewAmbiguous))
	return text.String()
}

// startTable lists the nominal start of each attempt, with a column for each preset.
func startTable(preview func(retry.Policy) []retry.PreviewAttempt) string {
	var text strings.Builder
	text.WriteString("| attempt |")
	var columns [][]retry.PreviewAttempt
	most := 0
	for _, preset := range retry.Presets() {
		fmt.Fprintf(&text, " `%s` |", preset.Name)
		attempts := preview(preset.Policy)
		columns, most = append(columns, attempts), max(most, len(attempts))
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for number := 1; number <= most; number++ {
		text.WriteString("| " + strconv.Itoa(number) + " |")
		for _, attempts := range columns {
			text.WriteString(" " + nominal(attempts, number) + " |")
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// nominal is one cell of a table.
func nominal(attempts []retry.PreviewAttempt, number int) string {
	switch {
	case number > len(attempts):
		return ""
	case !attempts[number-1].Expected:
		return "*"
	case number == 1:
		return "at once"
	default:
		return retry.FormatDuration(attempts[number-1].Nominal)
	}
}

func pictures() string {
	var text strings.Builder
	for _, preset := range retry.Presets() {
		fmt.Fprintf(&text, "\n![The attempts of %s on a logarithmic time axis](retries/%s.svg)\n", preset.Name, preset.Name)
	}
	return text.String() + "\n"
}

// delays describes how the delays of a preset grow.
func delays(p retry.Policy) string {
	if p.Strategy == retry.StrategySchedule {
		steps := make([]string, 0, len(p.Schedule))
		for _, step := range p.Schedule {
			steps = append(steps, retry.FormatDuration(step))
		}
		return strings.Join(steps, ", ")
	}
	text := retry.FormatDuration(p.Base)
	if p.Strategy == retry.StrategyExponential {
		text += ", each " + strconv.FormatFloat(p.Factor, 'g', -1, 64) + " times the one before"
	}
	if p.Cap > 0 {
		text += ", at most " + retry.FormatDuration(p.Cap)
	}
	return text
}

func jitter(p retry.Policy) string {
	text := p.Jitter.String()
	if p.Jitter == retry.JitterProportional {
		text += " " + strconv.FormatFloat(p.JitterRatio, 'g', -1, 64)
	}
	if p.MinDelay > 0 {
		text += ", at least " + retry.FormatDuration(p.MinDelay)
	}
	return text
}
