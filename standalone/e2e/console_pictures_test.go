package e2e_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// picturesVariable names the directory that TestPictures writes to.
const picturesVariable = "EVERPOST_PICTURES"

// maxPicture is the size of a picture of the README, in bytes.
const maxPicture = 60 << 10

// TestPictures writes the README's pictures of the console. `make pictures` runs it.
func TestPictures(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(picturesVariable)
	if dir == "" {
		t.Skip("make pictures runs this")
	}
	in := ownInstance(t, nil)
	browser := startBrowser(t)
	b := newBundle(t, in, in.client(), "acme")
	delivery := b.shop()
	eventually(contextFor(t, patience), t, func() string { // the charts
		var got struct {
			Totals counted `json:"totals"`
		}
		require.NoError(t, b.stats("")().into(&got))
		if len(got.Totals.Latency) == 0 || got.Totals.Latency["p50"] == nil {
			return "no statistics yet"
		}
		return ""
	})
	w := browser.open(t, in)
	w.as(in, in.key)
	w.theme("light")
	w.size(1000, 760)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, path := range map[string]string{
		"overview": b.below(), "delivery": b.below("deliveries", delivery.ID), "dead-letters": b.below("dead-letters"),
	} {
		w.show(path, http.StatusOK)
		taken, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		small := withFewColours(t, taken)
		require.LessOrEqual(t, len(small), maxPicture, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), small, 0o600))
	}
}

// shop gives the tenant the endpoints and the events of a shop: most arrive, one receiver is down, and one refuses. It
// returns a delivery that is tried again.
func (b *bundle) shop() (retried delivery) {
	b.t.Helper()
	r := newReceiver(b.t)
	down := receivertest.Step{Status: http.StatusServiceUnavailable, Body: "down for maintenance"}
	refuses := receivertest.Step{Status: http.StatusUnauthorized, Body: "unknown signature"}
	policy := fieldsOf{"strategy": "schedule", "schedule": []string{"1s", "2s", "6m", "1h"}, "jitter": "none", "max_attempts": 5}
	for path, fields := range map[string]fieldsOf{
		"/mail":      {"description": "Confirmation mails", "event_types": []string{"order.*"}},
		"/warehouse": {"description": "Warehouse", "event_types": []string{"order.paid"}, "retry_policy": policy},
		"/books":     {"description": "Bookkeeping", "event_types": []string{"invoice.*"}},
	} {
		b.endpoint(r, path, fields)
	}
	for range 4 {
		r.Script("/warehouse", down, down, down)
	}
	for range 3 {
		r.Script("/books", refuses)
	}
	for i := range 24 {
		b.post("order.shipped", fmt.Sprintf(`{"order":%d}`, 1000+i))
	}
	for i := range 3 {
		_, d := b.postOne("invoice.sent", fmt.Sprintf(`{"invoice":%d}`, 70+i))
		b.waitState(d.ID, "dead_lettered")
	}
	e := b.post("order.paid", `{"order":1024,"total":"49.90"}`)
	for _, d := range e.Deliveries {
		eventually(contextFor(b.t, patience), b.t, func() string {
			if found := b.delivery(d.ID); found.State == "delivered" {
				return ""
			} else if found.State == "retrying" && found.Attempts == 3 {
				retried = found
				return ""
			}
			return "the order is under way"
		})
	}
	require.NotEmpty(b.t, retried.ID)
	return retried
}

// withFewColours encodes a picture with a palette of its most frequent colours: a page has few, and the shades at the
// edges of letters are not missed.
func withFewColours(t *testing.T, picture []byte) []byte {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
	bounds := decoded.Bounds()
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(decoded.At(x, y)).(color.RGBA)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 64)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.RGBAModel.Convert(decoded.At(x, y)).(color.RGBA)
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small))
	return out.Bytes()
}
