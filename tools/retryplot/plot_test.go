package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

const docs = "../../docs"

// TestCommittedFilesAreWhatIsMade: after a change of a preset or of this program, run
// go generate ./tools/retryplot.
func TestCommittedFilesAreWhatIsMade(t *testing.T) {
	t.Parallel()

	committed := func(name string) string {
		text, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		return string(text)
	}
	old := committed("retries.md")
	made, err := page(old)
	require.NoError(t, err)
	require.Equal(t, made, old, "docs/retries.md: run go generate ./tools/retryplot")

	files, err := filepath.Glob(filepath.Join(docs, "retries", "*"))
	require.NoError(t, err)
	require.Len(t, files, len(retry.Presets()), "a file without a preset")
	for _, preset := range retry.Presets() {
		name := filepath.Join("retries", preset.Name+".svg")
		require.Equal(t, picture(preset), committed(name), "docs/%s: run go generate ./tools/retryplot", name)
		require.Contains(t, made, "]("+name+")", "the page shows it")
	}
}

func TestPageReplacesTheGeneratedPart(t *testing.T) {
	t.Parallel()

	made, err := page("before\n" + pageBegin + "old\n" + pageEnd + "after\n")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(made, "before\n"+pageBegin+"\n| preset |"))
	require.True(t, strings.HasSuffix(made, pageEnd+"after\n"))
	require.NotContains(t, made, "old")
	again, err := page(made)
	require.NoError(t, err)
	require.Equal(t, made, again)

	for _, text := range []string{"", pageBegin, pageEnd, pageEnd + pageBegin} {
		_, err := page(text)
		require.Error(t, err)
	}
}

// TestWrite generates the files in another directory; they equal the committed ones.
func TestWrite(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "retries"), 0o755))
	require.ErrorIs(t, write(dir), os.ErrNotExist, "there is no page yet")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "retries.md"), []byte("# Retries\n"+pageBegin+pageEnd), 0o600))
	require.NoError(t, write(dir))
	text, err := os.ReadFile(filepath.Join(dir, "retries.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "| `standard-webhooks` | 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h | proportional 0.1 | 10 | 84h |")
	for _, preset := range retry.Presets() {
		drawn, err := os.ReadFile(filepath.Join(dir, "retries", preset.Name+".svg"))
		require.NoError(t, err)
		require.Equal(t, picture(preset), string(drawn))
	}
}

// TestExamplesOfThePage: the example policies on the page are valid, and the documented bounds
// are the real ones.
func TestExamplesOfThePage(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(docs, "retries.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "```json\n")
	require.True(t, found)
	block, _, _ := strings.Cut(rest, "```")
	examples := strings.Split(strings.TrimSpace(block), "\n")
	require.GreaterOrEqual(t, len(examples), 3)
	_, rest, found = strings.Cut(string(text), `{"retry_policy":`)
	require.True(t, found)
	inCurl, _, _ := strings.Cut(rest, "}'")
	for _, example := range append(examples, inCurl) {
		_, err := retry.ParsePolicy([]byte(example))
		require.NoError(t, err, example)
	}

	bounds := map[string]string{ // the last column
		"base":                                 span(retry.ShortestDelay, retry.LongestDelay),
		"factor":                               "1 to " + strconv.Itoa(retry.LargestFactor),
		"cap":                                  span(retry.ShortestDelay, retry.LongestDelay) + ", not below `base`",
		"schedule":                             "1 to " + strconv.Itoa(retry.MostSteps) + " of them",
		"ambiguous_delays":                     "0 to " + strconv.Itoa(retry.MostAmbiguous) + " of them, " + span(retry.ShortestDelay, retry.LongestDelay),
		"max_attempts":                         "1 to " + strconv.Itoa(retry.MostAttempts),
		"give_up_after":                        span(retry.ShortestGiveUp, retry.LongestGiveUp),
		"retry_statuses`, `permanent_statuses": strconv.Itoa(retry.MostStatuses) + " of them each; no 2xx, no 3xx",
	}
	for line := range strings.Lines(string(text)) {
		for field, bound := range bounds {
			if strings.HasPrefix(line, "| `"+field+"` |") && strings.Count(line, "|") == 4 {
				require.True(t, strings.HasSuffix(line, "| "+bound+" |\n"), line)
				delete(bounds, field)
			}
		}
	}
	require.Empty(t, bounds, "a field is missing on the page")
}

func span(low, high time.Duration) string {
	return retry.FormatDuration(low) + " to " + retry.FormatDuration(high)
}

// element is one element of a chart, as parsed from XML.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(e.attrs[name], 64)
	require.NoError(t, err, "%s of %s", name, e.name)
	return value
}

func elements(t *testing.T, svg string) []element {
	t.Helper()
	var found []element
	var open []int
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			open = append(open, len(found))
			found = append(found, e)
		case xml.CharData:
			if len(open) > 0 {
				found[open[len(open)-1]].text += string(token)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
}

// TestPicturesAreAccessible: each picture has a title, its chart a title and a text alternative, and it loads
// nothing from elsewhere. The tests of console/chart check what is drawn.
func TestPicturesAreAccessible(t *testing.T) {
	t.Parallel()

	for _, preset := range retry.Presets() {
		all := elements(t, picture(preset))
		require.Equal(t, []string{"svg", "title", "style", "text", "tspan", "svg", "title", "desc"}, names(all[:8]))
		require.Contains(t, all[1].text, preset.Name)
		require.Equal(t, "img", all[5].attrs["role"])
		for _, a := range retry.Preview(preset.Policy) {
			require.Contains(t, all[7].text, "ttempt "+strconv.Itoa(a.Number)+" ")
		}
		require.Equal(t, "0 0 "+all[0].attrs["width"]+" "+all[0].attrs["height"], all[0].attrs["viewBox"])
		require.InDelta(t, all[0].number(t, "height"), all[5].number(t, "y")+all[5].number(t, "height"), 0)
		require.NotContains(t, style, "url")
		require.NotContains(t, style, "@")
		for _, e := range all {
			require.NotContains(t, e.attrs, "href")
			require.NotContains(t, e.attrs, "style")
			for class := range strings.FieldsSeq(e.attrs["class"]) {
				if !slices.Contains([]string{"chart", "policy", "label", "tick"}, class) {
					require.Contains(t, style, "."+class+"{")
				}
			}
		}
	}
}

func names(all []element) (names []string) {
	for _, e := range all {
		names = append(names, e.name)
	}
	return names
}

// luminance and contrast are WCAG 2.2's, sections "relative luminance" and "contrast
// ratio".
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	rgb, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	require.NoError(t, err)
	linear := func(c uint64) float64 {
		share := float64(c&0xff) / 255
		if share <= 0.04045 {
			return share / 12.92
		}
		return math.Pow((share+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(rgb>>16) + 0.7152*linear(rgb>>8) + 0.0722*linear(rgb)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	light, dark := luminance(t, a), luminance(t, b)
	if light < dark {
		light, dark = dark, light
	}
	return (light + 0.05) / (dark + 0.05)
}

// TestColoursServeLightAndDarkPages: text has a contrast of at least 4 on white and on dark
// pages, and graphics have the 3 that WCAG requires.
func TestColoursServeLightAndDarkPages(t *testing.T) {
	t.Parallel()

	for _, ground := range []string{"#ffffff", "#0d1117"} {
		require.GreaterOrEqual(t, contrast(t, colourText, ground), 4.0, ground)
		require.GreaterOrEqual(t, contrast(t, colourBand, ground), 3.0, ground)
		require.GreaterOrEqual(t, contrast(t, colourEnd, ground), 3.0, ground)
	}
	require.GreaterOrEqual(t, contrast(t, colourDot, colourBand), 3.0)
	require.GreaterOrEqual(t, contrast(t, colourRim, colourDot), 3.0)
}
