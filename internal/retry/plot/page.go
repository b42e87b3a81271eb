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
	pageBegin = "<!-- presets: made by go generate ./internal/retry/plot, do not edit -->\n"
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
	return before + pageBegin + tables() + ambiguousTable() + pictures() + pageEnd + after, nil
}

// tables lists the presets, and the nominal time of each of their attempts.
func tables() string {
	var text strings.Builder
	text.WriteString("\n| preset | delays before jitter | jitter | attempts | given up after |\n|---|---|---|---|---|\n")
	presets := retry.Presets()
	most := 0
	for _, preset := range presets {
		p := preset.Policy
		fmt.Fprintf(&text, "| `%s` | %s | %s | %d | %s |\n", preset.Name, delays(p), jitter(p), p.MaxAttempts, retry.FormatDuration(p.GiveUpAfter))
		most = max(most, p.MaxAttempts)
	}

	text.WriteString("\nWhen each attempt starts, counted from the first, without jitter and if every answer comes at once:\n\n| attempt |")
	for _, preset := range presets {
		fmt.Fprintf(&text, " `%s` |", preset.Name)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(presets)) + "\n")
	for number := 1; number <= most; number++ {
		text.WriteString("| " + strconv.Itoa(number) + " |")
		for _, preset := range presets {
			text.WriteString(" " + nominal(retry.Preview(preset.Policy), number) + " |")
		}
		text.WriteByte('\n')
	}
	text.WriteString("\n\\* This attempt is made only if jitter makes earlier delays short; otherwise the give-up time comes first.\n")
	return text.String()
}

// ambiguousTable lists when the attempts start if every outcome is ambiguous.
func ambiguousTable() string {
	var text strings.Builder
	text.WriteString("\nThe same if every outcome is [ambiguous](#limits): a 404 (except with `standard-webhooks`), or `token_refused`:\n\n| attempt |")
	presets := retry.Presets()
	most := 0
	for _, preset := range presets {
		fmt.Fprintf(&text, " `%s` |", preset.Name)
		most = max(most, len(retry.PreviewAmbiguous(preset.Policy)))
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(presets)) + "\n")
	for number := 1; number <= most; number++ {
		text.WriteString("| " + strconv.Itoa(number) + " |")
		for _, preset := range presets {
			text.WriteString(" " + nominal(retry.PreviewAmbiguous(preset.Policy), number) + " |")
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
