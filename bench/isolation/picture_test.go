package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPicture: the SVG is well formed and has a description, one curve for each series, and
// nothing outside its bounds.
func TestPicture(t *testing.T) {
	t.Parallel()
	p := picture{
		from: 2 * time.Second, until: 4 * time.Second, usual: 50,
		curves: []curve{{"with admission", []int{50, 50, 7, 1, 0, 60, 75}}, {"without", []int{50, 50, 250, 240, 180, 900}}},
	}
	text := p.draw()
	require.Contains(t, text, "with admission: at most 7 requests in a second while it fails, at most 75 after its return")
	require.Contains(t, text, "without: at most 250 requests in a second while it fails, at most 900 after its return")
	var curves []string
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range start.Attr {
			switch a.Name.Local {
			case "points":
				curves = append(curves, a.Value)
			case "href", "style", "class":
				require.Fail(t, "looks elsewhere", a.Value)
			}
		}
	}
	require.Len(t, curves, 2)
	for i, curve := range curves {
		places := strings.Fields(curve)
		require.Len(t, places, len(p.curves[i].Counts))
		for _, place := range places {
			x, y, _ := strings.Cut(place, ",")
			requireWithin(t, x, left, right)
			requireWithin(t, y, top, bottom)
		}
	}
	require.Contains(t, picture{usual: 50, until: time.Second, curves: []curve{{"with", nil}}}.draw(), "</svg>", "nothing arrived")
}

func requireWithin(t *testing.T, text string, low, high float64) {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, low)
	require.LessOrEqual(t, n, high)
}
