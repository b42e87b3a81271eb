package console

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image/png"
	"net/http"

	"github.com/everpost/everpost/internal/look"
)

// PortalLook is how the portal looks. Images are PNG or WebP, the font is WOFF2; they are the content of files.
type PortalLook struct {
	// Name is shown beside the logo and in titles. Defaults to none.
	Name string
	// Color is the accent (#rrggbb). Defaults to the console's.
	Color string

	Logo, LogoDark, Favicon, Font []byte
	// Catalogues are texts in further languages, by language tag.
	Catalogues map[string][]byte
}

// Bounds of the files of a PortalLook.
const (
	MaxImage   = 256 << 10 // bytes
	MaxFont    = 512 << 10 // bytes
	maxPixels  = 2048      // on each side of an image
	fontHeader = 48        // bytes of a WOFF2 header (W3C WOFF 2.0, section 4.1)
)

// CheckImage checks the content of an image.
func CheckImage(content []byte) error {
	_, err := imageType(content)
	return err
}

// CheckCatalogues checks texts in further languages.
func CheckCatalogues(further map[string][]byte) error {
	_, err := readLanguages(further)
	return err
}

// imageType is the media type of an image, by its content.
func imageType(content []byte) (string, error) {
	if len(content) > MaxImage {
		return "", fmt.Errorf("it has more than %d KiB", MaxImage>>10)
	}
	if isWebP(content) {
		return "image/webp", nil
	}
	size, err := png.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		return "", errors.New("it is neither a PNG nor a WebP image")
	}
	if size.Width > maxPixels || size.Height > maxPixels {
		return "", fmt.Errorf("it has more than %d pixels on a side", maxPixels)
	}
	return "image/png", nil
}

// isWebP checks the container: RIFF, the length of the rest, WEBP, and a chunk of an image (Google's WebP container specification).
func isWebP(content []byte) bool {
	const head = 16
	if len(content) < head || string(content[:4]) != "RIFF" || string(content[8:12]) != "WEBP" || string(content[12:15]) != "VP8" {
		return false
	}
	return uint64(binary.LittleEndian.Uint32(content[4:8]))+8 == uint64(len(content))
}

// CheckFont checks the header of a WOFF2 file: its signature and its length.
func CheckFont(content []byte) error {
	switch {
	case len(content) > MaxFont:
		return fmt.Errorf("it has more than %d KiB", MaxFont>>10)
	case len(content) < fontHeader || string(content[:4]) != "wOF2" || uint64(binary.BigEndian.Uint32(content[8:12])) != uint64(len(content)):
		return errors.New("it is not a WOFF2 font")
	}
	return nil
}

// loadPortalAssets has the portal's own files and those of its look.
func loadPortalAssets(of PortalLook, accent string) (assets, error) {
	all := assets{}
	for name, content := range map[string][]byte{logoFile: of.Logo, darkLogoFile: of.LogoDark, faviconFile: of.Favicon} {
		if len(content) == 0 {
			continue
		}
		media, err := imageType(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = look.NewFile(content, media)
	}
	own := map[string][]byte{}
	for _, name := range []string{"portal.css", "portal.svg", "portal.js", "embed.js"} {
		content, err := portalAssets.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		own[name] = look.WithAccent(content, accent)
	}
	if len(of.Font) > 0 {
		if err := CheckFont(of.Font); err != nil {
			return nil, fmt.Errorf("font: %w", err)
		}
		all[fontFile] = look.NewFile(of.Font, "font/woff2")
		face := `@font-face{font-family:"portal";font-display:swap;src:url("` + addressOf(all, fontFile) + `") format("woff2")}` + "\n"
		own["portal.css"] = append([]byte(face), own["portal.css"]...)
	}
	if len(of.Favicon) == 0 {
		all[faviconFile] = look.NewFile(own["portal.svg"], "image/svg+xml")
	}
	all["portal.css"] = look.NewFile(own["portal.css"], "text/css; charset=utf-8")
	all["portal.js"], all["embed.js"] = look.Script(joined(own["portal.js"])), look.Script(own["embed.js"])
	return all, nil
}

// The names of the files of a look, as they are served.
const (
	logoFile     = "logo"
	darkLogoFile = "logo-dark"
	faviconFile  = "favicon"
	fontFile     = "font.woff2"
)

// addressOf is the path of one of the portal's files; "" if there is none.
func addressOf(all assets, name string) string {
	file, known := all[name]
	if !known {
		return ""
	}
	return file.Address(PortalRoot + "/assets/" + name)
}

// embedScript is the path of the web component, below PortalRoot. It has no hash: products write it into their pages.
const embedScript = "/embed.js"

// serveEmbed serves the web component to pages of all origins. It holds nothing secret.
func (l *portal) serveEmbed(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("Content-Type", l.assets["embed.js"].Media)
	http.ServeContent(w, r, "", l.started, bytes.NewReader(l.assets["embed.js"].Content))
}
