package console

import (
	"embed"
	"net/http"
	"slices"

	"github.com/everpost/everpost/internal/look"
)

var (
	//go:embed assets/shared.js
	sharedScript []byte // what the scripts of the console and of the portal begin with
	//go:embed assets/console.js
	script []byte
)

// portalAssets are those of the portal.
//
//go:embed assets/portal.css assets/portal.js assets/portal.svg assets/embed.js
var portalAssets embed.FS

// assets are the files that pages load, by their names. An address has its file's hash, so that a browser may keep it.
type assets map[string]look.File

// loadAssets makes the assets with an accent.
func loadAssets(accent string) assets {
	return assets{"console.css": look.Style(accent), "console.js": look.Script(joined(script)), "icon.svg": look.Icon(accent)}
}

// joined is a script with what all share before it. Nothing of both is a global of the page.
func joined(script []byte) []byte {
	return slices.Concat([]byte("(() => {\n"), sharedScript, script, []byte("})();\n"))
}

// address is an asset's path.
func (s assets) address(name string) string { return s[name].Address(Root + "/assets/" + name) }

func (s assets) serve(w http.ResponseWriter, r *http.Request) {
	a, known := s[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	if a.Immutable(r.URL.Query()) {
		w.Header().Set("Cache-Control", look.KeepForever)
	}
	w.Header().Set("Content-Type", a.Media)
	_, _ = w.Write(a.Content) // an error: the browser has gone
}
