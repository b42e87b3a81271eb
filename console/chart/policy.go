package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// The axis of a policy is logarithmic: from half a second, which stands for all that is earlier, to past the longest
// give-up time of a preset. A policy that goes on for longer gets a longer axis.
const (
	policyBegin = 500 * time.Millisecond
	policyEnd   = 100 * time.Hour
)

// maxRows bounds the attempts that are drawn and described; the others are only counted.
const maxRows = 24

// Heights in the chart of a policy, in pixels.
const (
	policyTop  = 42.0 // of the first row
	rowHeight  = 16.0
	policyFoot = 22.0 // below the last row
	policyLeft = 8.0  // where the axis begins, in percent: the numbers stand before it
)

// policyAxis maps the time since the first attempt to a position.
type policyAxis struct{ end time.Duration }

func (a policyAxis) at(since time.Duration) float64 {
	share := math.Log(float64(max(since, policyBegin))/float64(policyBegin)) / math.Log(float64(a.end)/float64(policyBegin))
	return policyLeft + upTo(share, 1)*(right-policyLeft)
}

// PolicyHeight is the height of what DrawPolicy draws, in pixels.
func PolicyHeight(p retry.Policy) int {
	return int(policyTop + rowHeight*float64(min(len(retry.Preview(p)), maxRows)) + policyFoot)
}

// DrawPolicy draws when the attempts of a policy start if none succeeds: one row for each attempt, from the earliest to
// the latest time that jitter allows, with a dot at the time without jitter.
func DrawPolicy(p retry.Policy) template.HTML {
	attempts := retry.Preview(p)
	shown := attempts[:min(len(attempts), maxRows)]
	bottom := policyTop + rowHeight*float64(len(shown))
	axis := policyAxis{max(policyEnd, p.GiveUpAfter)}
	d := draw("policy", "When the attempts of the retry policy start", policyWords(p, attempts), PolicyHeight(p))
	d.rect("window", policyLeft, 4, 4, 9, "")
	d.dot("nominal", policyLeft+2, 8.5, 3, "")
	d.textFrom("label", "start", policyLeft+5.5, 13, "from earliest to latest; dot: without jitter; line: after Retry-After")
	d.drawSince(axis, policyTop-6, bottom)
	if give := p.GiveUpAfter; give > 0 {
		x := axis.at(give)
		d.line("give-up", x, policyTop-6, x, bottom)
		d.text("label", x, policyTop-10, "given up after "+Span(give))
	}
	for i, a := range shown {
		y := policyTop + rowHeight*(float64(i)+0.5)
		d.textFrom("tick", "end", policyLeft-1.5, y+4, strconv.Itoa(a.Number))
		class, hint := "window", attemptWords(a)
		if !a.Expected {
			class = "window unlikely"
		}
		from, to := axis.at(a.Earliest), axis.at(a.Latest)
		d.rect(class, from, y-5, max(to-from, 0.6), 10, hint)
		if reach := axis.at(a.LatestAfterRetryAfter); reach > to {
			d.line("reach", to, y, reach, y)
		}
		if a.Expected {
			d.dot("nominal", axis.at(a.Nominal), y, 3, hint)
		}
	}
	return d.html()
}

// drawSince draws grid lines and the labels of a logarithmic axis.
func (d *drawing) drawSince(axis policyAxis, top, bottom float64) {
	var labels row
	for _, mark := range []time.Duration{
		time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, day, 3 * day, 10 * day, 30 * day,
	} {
		if mark > axis.end {
			break
		}
		x := axis.at(mark)
		d.line("grid", x, top, x, bottom)
		text := sinceLabel(mark)
		if labels.take(x, text) {
			d.text("tick", x, bottom+14, text)
		}
	}
}

// sinceLabel is a mark of the axis: 72 hours are easier to compare with a give-up time than three days.
func sinceLabel(mark time.Duration) string {
	if mark == time.Minute {
		return "1 min"
	}
	if mark >= time.Hour && mark <= 3*day {
		return fmt.Sprintf("%d h", mark/time.Hour)
	}
	return Span(mark)
}

// attemptWords says when an attempt starts.
func attemptWords(a retry.PreviewAttempt) string {
	switch {
	case a.Number == 1:
		return "attempt 1 at once"
	case !a.Expected:
		return fmt.Sprintf("attempt %d only after short delays, not before %s", a.Number, Span(a.Earliest))
	case a.Earliest == a.Latest:
		return fmt.Sprintf("attempt %d after %s", a.Number, Span(a.Nominal))
	}
	return fmt.Sprintf("attempt %d after %s to %s, without jitter %s", a.Number, Span(a.Earliest), Span(a.Latest), Span(a.Nominal))
}

// policyWords is the text alternative.
func policyWords(p retry.Policy, attempts []retry.PreviewAttempt) string {
	said := make([]string, 0, maxRows+2)
	for _, a := range attempts[:min(len(attempts), maxRows)] {
		said = append(said, attemptWords(a))
	}
	if more := len(attempts) - maxRows; more > 0 {
		said = append(said, fmt.Sprintf("and %d more, the last not before %s", more, Span(attempts[len(attempts)-1].Earliest)))
	}
	if p.GiveUpAfter > 0 {
		said = append(said, "given up after "+Span(p.GiveUpAfter))
	}
	if p.MaxRetryAfter > 0 {
		said = append(said, "a Retry-After counts for up to "+Span(p.MaxRetryAfter))
	}
	return "Counted from the first attempt, if every answer comes at once: " + strings.Join(said, "; ") + "."
}
