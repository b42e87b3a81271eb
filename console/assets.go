package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"math"
	"net/http"
	"strconv"
)

//go:embed assets/console.css assets/console.js assets/icon.svg assets/portal.css assets/portal.js assets/portal.svg assets/embed.js
var assetFiles embed.FS

// asset is a file that pages load. Its address has its hash, so that a browser may keep it.
type asset struct {
	content []byte
	media   string
	hash    string
}

// assets are all files, by their names.
type assets map[string]asset

const (
	defaultColor = "#0b6e6e" // the accent in console.css
	onAccentMark = "#fffffe" // the text on it
)

// loadAssets reads the assets and sets the accent.
func loadAssets(accent string) assets {
	all := assets{}
	for name, media := range map[string]string{
		"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic("an embedded file is missing: " + name) // the compiler has seen it
		}
		if name != "console.js" {
			content = bytes.ReplaceAll(content, []byte(defaultColor), []byte(accent))
			content = bytes.ReplaceAll(content, []byte(onAccentMark), []byte(textOn(accent)))
		}
		sum := sha256.Sum256(content)
		all[name] = asset{content, media, hex.EncodeToString(sum[:6])}
	}
	return all
}

// address is an asset's path.
func (s assets) address(name string) string {
	return Root + "/assets/" + name + "?v=" + s[name].hash
}

func (s assets) serve(w http.ResponseWriter, r *http.Request) {
	a, known := s[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("v") == a.hash {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", a.media)
	_, _ = w.Write(a.content) // an error: the browser has gone
}

// textOn is black or white, whichever has the higher contrast on a colour (WCAG 2.2, contrast ratio).
func textOn(color string) string {
	n, err := strconv.ParseUint(color[1:], 16, 32)
	if err != nil || len(color) != len("#rrggbb") {
		return "#ffffff"
	}
	linear := func(channel uint64) float64 {
		c := float64(channel&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	luminance := 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
	if 1.05/(luminance+0.05) >= (luminance+0.05)/0.05 {
		return "#ffffff"
	}
	return "#000000"
}
