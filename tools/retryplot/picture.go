package main

import (
	"fmt"
	"strings"

	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/retry"
)

// The colours have medium brightness, so that they are visible on light and dark pages and a
// chart needs no background and no second version. The test checks their contrast.
const (
	colourText = "#787878"
	colourBand = "#4a90d9"
	colourEnd  = "#d1480f"
	colourDot  = "#ffffff" // with an outline, on a bar
	colourRim  = "#1f5fa8"
)

// The dimensions, in pixels.
const (
	width = 760
	head  = 26 // height of the line above the chart
)

// style has the classes of the chart, as the console's style sheet has.
const style = `text{font:12px system-ui,sans-serif;fill:` + colourText + `}.grid{stroke:` + colourText + `;stroke-opacity:.4;stroke-width:.5}` +
	`.window{fill:` + colourBand + `}.unlikely{fill:none;stroke:` + colourBand + `;stroke-dasharray:3 2}` +
	`.reach{stroke:` + colourBand + `;stroke-width:1}` +
	`.nominal{fill:` + colourDot + `;stroke:` + colourRim + `;stroke-width:1.5}.give-up{stroke:` + colourEnd + `;stroke-width:1.5;stroke-dasharray:4 3}`

// picture is the console's chart of a preset's policy, below a line that names the preset.
func picture(preset retry.Preset) string {
	drawn := strings.Replace(string(chart.DrawPolicy(preset.Policy)), "<svg ", fmt.Sprintf(`<svg y="%d" `, head), 1)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d">`+"\n"+
		"<title>Retry policy %[3]s</title>\n<style>%[4]s</style>\n"+
		`<text x="12" y="16"><tspan font-weight="bold">%[3]s</tspan> · %[5]s · jitter %[6]s</text>`+"\n%[7]s\n</svg>\n",
		width, head+chart.PolicyHeight(preset.Policy), preset.Name, style, delays(preset.Policy), jitter(preset.Policy),
		strings.ReplaceAll(drawn, "><", ">\n<"))
}
