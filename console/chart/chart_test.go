package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

// With -update, the tests write what they compare with.
var update = flag.Bool("update", false, "write the golden files again")

var noon = time.Date(2026, time.November, 24, 12, 0, 0, 0, time.UTC)

// golden compares a chart with the file of that name, and checks that it is sound.
func golden(t *testing.T, name string, got template.HTML) {
	t.Helper()
	requireSound(t, got)
	path := filepath.Join("testdata", name+".svg")
	text := strings.ReplaceAll(string(got), "><", ">\n<") + "\n"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./console/chart -update")
	require.Equal(t, string(want), text, "after a change that is meant: go test ./console/chart -update")
}

// testingT is what requireSound needs of a test or of a property.
type testingT interface {
	require.TestingT
	Helper()
}

// requireSound checks that a chart is well-formed XML of classes and numbers, that all of it is within the picture, and
// that it says in words what it shows.
func requireSound(t testingT, svg template.HTML) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(svg)))
	height, elements := 0.0, 0
	var texts []string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "%s", svg)
		switch token := token.(type) {
		case xml.StartElement:
			if elements == 0 {
				height = requireRoot(t, token)
			}
			elements++
			requireAttributes(t, token, height)
		case xml.CharData:
			texts = append(texts, string(token))
		}
	}
	require.GreaterOrEqual(t, len(texts), 2)
	require.NotEmpty(t, strings.TrimSpace(texts[0]), "title")
	require.NotEmpty(t, strings.TrimSpace(texts[1]), "desc")
	require.Less(t, len(svg), 60<<10, "a chart is a part of a page of 100 KB")
	require.NotContains(t, string(svg), "NaN")
	require.NotContains(t, string(svg), "Inf")
}

func requireRoot(t testingT, root xml.StartElement) float64 {
	t.Helper()
	attributes := map[string]string{}
	for _, a := range root.Attr {
		attributes[a.Name.Local] = a.Value
	}
	require.Equal(t, "img", attributes["role"])
	require.Equal(t, "100%", attributes["width"])
	height, err := strconv.ParseFloat(attributes["height"], 64)
	require.NoError(t, err)
	return height
}

// requireAttributes checks the attributes of an element: known ones only, in particular no style and no handler, and
// numbers within the picture.
func requireAttributes(t testingT, element xml.StartElement, height float64) {
	t.Helper()
	values := map[string]float64{}
	for _, a := range element.Attr {
		switch name := a.Name.Local; name {
		case "xmlns", "class", "role", "text-anchor", "viewBox", "preserveAspectRatio", "vector-effect":
		case "d":
			requirePath(t, a.Value)
		case "x", "x1", "x2", "cx", "width":
			require.True(t, strings.HasSuffix(a.Value, "%"), "%s=%q", name, a.Value)
			values[name] = number(t, strings.TrimSuffix(a.Value, "%"))
			require.True(t, values[name] >= 0 && values[name] <= 100, "%s=%q of %s", name, a.Value, element.Name.Local)
		case "y", "y1", "y2", "cy", "height", "r":
			values[name] = number(t, a.Value)
			require.True(t, values[name] >= 0 && values[name] <= height, "%s=%q of %s", name, a.Value, element.Name.Local)
		default:
			require.Fail(t, "an attribute that a chart does not use", name)
		}
	}
	require.LessOrEqual(t, values["x"]+values["width"], 100.02)
	require.LessOrEqual(t, values["y"]+values["height"], height+0.02)
}

func requirePath(t testingT, path string) {
	t.Helper()
	for _, point := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("MLh ", r) }) {
		f := number(t, point)
		require.True(t, f >= 0 && f <= 1000, "%q of %q", point, path)
	}
}

func number(t testingT, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.False(t, math.IsNaN(f) || math.IsInf(f, 0))
	return f
}

func retryingTimeline() Timeline {
	at := noon
	t := Timeline{Accepted: at, Now: noon.Add(7 * time.Minute), GiveUp: noon.Add(72 * time.Hour)}
	for i, delay := range []time.Duration{8 * time.Second, 21 * time.Second, 67 * time.Second, 200 * time.Second, 700 * time.Second} {
		t.Attempts = append(t.Attempts, Attempt{
			Number: i + 1, At: at, Took: 120 * time.Millisecond, Decision: retry.Retry, Result: "503", Delay: delay, Why: "backoff",
		})
		t.Next = at.Add(delay)
		at = t.Next
	}
	return t
}

func TestTimelineGolden(t *testing.T) {
	t.Parallel()
	retrying := retryingTimeline()
	golden(t, "timeline-retrying", DrawTimeline(retrying))

	near := retrying
	near.GiveUp = noon.Add(40 * time.Minute)
	golden(t, "timeline-give-up-near", DrawTimeline(near))

	delivered := retrying
	delivered.Attempts = append(slices.Clone(retrying.Attempts[:4]), Attempt{
		Number: 5, At: noon.Add(296 * time.Second), Took: 14 * time.Second, Decision: retry.Delivered, Result: "200",
	})
	delivered.Ended, delivered.End, delivered.Next = noon.Add(310*time.Second), "delivered", time.Time{}
	golden(t, "timeline-delivered", DrawTimeline(delivered))

	held := Timeline{
		Accepted: noon, Now: noon.Add(time.Hour), GiveUp: noon.Add(3 * time.Hour),
		Held: Held{Since: noon.Add(time.Second), Why: "endpoint <paused>"},
	}
	golden(t, "timeline-held", DrawTimeline(held))
}

func TestTimelineSaysWhatItShows(t *testing.T) {
	t.Parallel()
	drawn := string(DrawTimeline(retryingTimeline()))
	for _, said := range []string{
		"Accepted at 12:00:00 UTC", "attempt 2: 503 at 12:00:08 UTC, after 120 ms, then a wait of 21 s (backoff)",
		"next attempt at 12:16:36 UTC", "given up at 27 Nov 12:00 UTC at the latest", "give up at 27 Nov 12:00 UTC",
	} {
		require.Contains(t, drawn, said)
	}
}

func TestBarsGolden(t *testing.T) {
	t.Parallel()
	bars := Bars{
		Title: "Deliveries per minute", Unit: "deliveries per minute", Begin: noon, Step: time.Minute,
		Series: []Series{
			{Name: "delivered", Tone: ToneGood, Values: []int64{3, 5, 8, 0, 13}},
			{Name: "retried", Tone: ToneRetry, Values: []int64{0, 1, 2}},
			{Name: "dead letters", Tone: ToneBad, Values: []int64{0, 0, 1, 0, -4}},
		},
	}
	golden(t, "bars", DrawBars(bars))
	golden(t, "bars-empty", DrawBars(Bars{Title: "Deliveries per minute", Begin: noon, Step: time.Minute}))

	bars.Series = []Series{{Name: "delivered", Values: make([]int64, 181)}}
	for i := range bars.Series[0].Values {
		bars.Series[0].Values[i] = 10
	}
	merged := string(DrawBars(bars))
	require.Equal(t, 46, strings.Count(merged, `class="bar`), "four minutes a column")
	require.Contains(t, merged, "delivered: 10 on average", "the mean of the minutes, not their sum")
}

// Names that do not fit a line on a phone go on in the next one, and the chart grows.
func TestKeysFitAPhone(t *testing.T) {
	t.Parallel()
	bars := Bars{Title: "Attempts", Unit: "attempts", Begin: noon, Step: time.Minute}
	for i, name := range []string{"delivered", "4xx", "5xx", "timeout", "no connection", "DNS", "TLS", "redirect or other"} {
		bars.Series = append(bars.Series, Series{Name: name, Tone: Tone(i), Values: []int64{int64(i), 3}})
	}
	keys := regexp.MustCompile(`<rect class="key [^"]+" x="[\d.]+%" y="([\d.]+)"`)
	for n, lines := range map[int]int{1: 1, 5: 1, 6: 2, 8: 2} {
		some := bars
		some.Series = bars.Series[:n]
		drawn := DrawBars(some)
		requireSound(t, drawn)
		rows := map[string]bool{}
		for _, found := range keys.FindAllStringSubmatch(string(drawn), -1) {
			rows[found[1]] = true
		}
		require.Len(t, rows, lines, n)
		require.Contains(t, string(drawn), `height="`+strconv.Itoa(chartHeight+(lines-1)*int(keyHeight))+`"`)
	}
}

func TestLinesGolden(t *testing.T) {
	t.Parallel()
	golden(t, "lines", DrawLines(Lines{
		Title: "Latency", Begin: noon, Step: time.Minute, Series: []Durations{
			{Name: "p50", Tone: ToneGood, Values: []time.Duration{12 * time.Millisecond, 14 * time.Millisecond, -1, 9 * time.Millisecond}},
			{Name: "p95", Tone: ToneRetry, Values: []time.Duration{80 * time.Millisecond, 170 * time.Millisecond, -1, 60 * time.Millisecond, 0}},
		},
	}))
	golden(t, "lines-unknown", DrawLines(Lines{Title: "Latency", Begin: noon, Series: []Durations{{Name: "p50", Values: []time.Duration{-1}}}}))
}

func TestPolicyGolden(t *testing.T) {
	t.Parallel()
	for _, preset := range retry.Presets() {
		golden(t, "policy-"+preset.Name, DrawPolicy(preset.Policy))
	}
}

// A bar goes from the earliest to the latest time of each attempt, with a dot at the time without jitter.
func TestPolicyShowsThePreview(t *testing.T) {
	t.Parallel()
	bars := regexp.MustCompile(`<rect class="(window[^"]*)" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"`)
	dots := regexp.MustCompile(`<circle class="nominal" cx="([\d.]+)%"`)
	for _, preset := range retry.Presets() {
		require.LessOrEqual(t, preset.Policy.GiveUpAfter, policyEnd)
		axis := policyAxis{policyEnd}
		drawn := string(DrawPolicy(preset.Policy))
		bar, dot := bars.FindAllStringSubmatch(drawn, -1)[1:], dots.FindAllStringSubmatch(drawn, -1)[1:] // without the legend's
		for i, a := range retry.Preview(preset.Policy) {
			require.InDelta(t, axis.at(a.Earliest), number(t, bar[i][2]), 0.01)
			require.InDelta(t, max(axis.at(a.Latest)-axis.at(a.Earliest), 0.6), number(t, bar[i][3]), 0.01)
			require.Equal(t, a.Expected, bar[i][1] == "window")
			if a.Expected {
				require.InDelta(t, axis.at(a.Nominal), number(t, dot[i][1]), 0.01)
			} else {
				require.LessOrEqual(t, len(dot), i)
			}
		}
		require.Len(t, bar, len(retry.Preview(preset.Policy)))
	}
}

func TestPolicyAxis(t *testing.T) {
	t.Parallel()
	axis := policyAxis{policyEnd}
	require.InDelta(t, policyLeft, axis.at(0), 0)
	require.InDelta(t, policyLeft, axis.at(policyBegin), 0)
	require.InDelta(t, right, axis.at(policyEnd), 1e-9)
	// Logarithmic: a factor of ten is the same distance everywhere.
	require.InDelta(t, axis.at(10*time.Second)-axis.at(time.Second), axis.at(100*time.Minute)-axis.at(10*time.Minute), 1e-9)
}

func TestReplayGolden(t *testing.T) {
	t.Parallel()
	golden(t, "replay-progress", DrawProgress(Replay{Total: 1000, Released: 400, Delivered: 350, Failed: 30, Skipped: 10, Open: true}))
	golden(t, "replay-ramp", DrawRamp(Replay{Rate: 400, Asked: 6000, Ramp: true, Open: true}))
	require.Contains(t, DrawProgress(Replay{}), "Nothing to send again.")
	require.Contains(t, DrawProgress(Replay{Total: -1, Released: 3}), "how many are to come is not known yet")
}

// Whatever the times and numbers are, a chart is sound.
func TestChartsOfAnything(t *testing.T) {
	t.Parallel()
	instants := rapid.Custom(func(t *rapid.T) time.Time {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return time.Time{}
		case 1:
			return time.Date(rapid.IntRange(1, 9999).Draw(t, "year"), 1, 1, 0, 0, 0, 0, time.UTC)
		}
		return noon.Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "offset")))
	})
	durations := rapid.Map(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1e10, 1e13)), func(n int64) time.Duration { return time.Duration(n) })
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "503", "</svg><script>", `"`}))
	decisions := rapid.SampledFrom([]retry.Decision{0, retry.Delivered, retry.Retry, retry.Permanent})
	attempts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Attempt {
		return Attempt{
			Number: rapid.Int().Draw(t, "number"), At: instants.Draw(t, "at"), Took: durations.Draw(t, "took"), Decision: decisions.Draw(t, "decision"),
			Result: texts.Draw(t, "result"), Delay: durations.Draw(t, "delay"), Why: texts.Draw(t, "why"),
		}
	}), 0, 300)
	rapid.Check(t, func(t *rapid.T) {
		requireSound(t, DrawTimeline(Timeline{
			Now: instants.Draw(t, "now"), Accepted: instants.Draw(t, "accepted"), Attempts: attempts.Draw(t, "attempts"),
			Held: Held{instants.Draw(t, "since"), texts.Draw(t, "why")},
			Next: instants.Draw(t, "next"), GiveUp: instants.Draw(t, "give up"), Ended: instants.Draw(t, "ended"), End: texts.Draw(t, "end"),
		}))
		values := rapid.SliceOfN(rapid.Int64(), 0, 500)
		requireSound(t, DrawBars(Bars{
			Title: "t", Begin: instants.Draw(t, "begin"), Step: durations.Draw(t, "step"),
			Series: []Series{{Name: texts.Draw(t, "name"), Values: values.Draw(t, "values")}, {Values: values.Draw(t, "values")}},
		}))
		requireSound(t, DrawLines(Lines{
			Title: "t", Begin: instants.Draw(t, "begin"), Step: durations.Draw(t, "step"),
			Series: []Durations{{Values: rapid.SliceOfN(durations, 0, 500).Draw(t, "values")}, {Values: rapid.SliceOfN(durations, 0, 5).Draw(t, "values")}},
		}))
		counts := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1000))
		r := Replay{
			Total: counts.Draw(t, "total"), Released: counts.Draw(t, "released"), Skipped: counts.Draw(t, "skipped"), Delivered: counts.Draw(t, "delivered"),
			Failed: counts.Draw(t, "failed"), Rate: rapid.Int().Draw(t, "rate"), Asked: rapid.Int().Draw(t, "asked"), Ramp: rapid.Bool().Draw(t, "ramp"),
		}
		requireSound(t, DrawProgress(r))
		requireSound(t, DrawRamp(r))
	})
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                    "less than 1 ms",
		0:                               "less than 1 ms",
		120 * time.Millisecond:          "120 ms",
		1500 * time.Millisecond:         "1.5 s",
		62 * time.Second:                "62 s",
		250 * time.Second:               "4 min 10 s",
		time.Hour:                       "1 h",
		3 * time.Hour:                   "3 h",
		150 * time.Minute:               "2 h 30 min",
		72 * time.Hour:                  "3 days",
		100*time.Hour + 10*time.Minute:  "4 days 4 h",
		10*time.Minute + time.Second/10: "10 min",
	} {
		require.Equal(t, want, Span(d), "%s", d)
	}
}
