// Package look is how Everpost's web pages look: the stylesheet and the icon that the console and the reference of the API share.
package look

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"math"
	"net/url"
	"strconv"
)

var (
	//go:embed style.css
	style []byte
	//go:embed icon.svg
	icon []byte
)

// DefaultAccent is the accent in the files, in the form of all accents: #rrggbb.
const DefaultAccent = "#0b6e6e"

const onAccentMark = "#fffffe" // the text on it

// File is a page, or a file that pages load.
type File struct {
	Content []byte
	Media   string // its media type
	Hash    string // of the content: an address that has it may be kept by a browser
}

// NewFile makes a file.
func NewFile(content []byte, media string) File {
	sum := sha256.Sum256(content)
	return File{content, media, hex.EncodeToString(sum[:6])}
}

// Style is the stylesheet with an accent, followed by rules of the caller's own.
func Style(accent string, more ...byte) File {
	return NewFile(append(WithAccent(style, accent), more...), "text/css; charset=utf-8")
}

// Icon is the icon with an accent.
func Icon(accent string) File { return NewFile(WithAccent(icon, accent), "image/svg+xml") }

// Script is a script.
func Script(content []byte) File { return NewFile(content, "text/javascript; charset=utf-8") }

// Immutable reports whether a request for the file, with this query, asks for just this content.
func (f File) Immutable(query url.Values) bool { return query.Get("v") == f.Hash }

// Address is the file's address at a path, with its hash.
func (f File) Address(path string) string { return path + "?v=" + f.Hash }

// WithAccent is a file with an accent in the place of DefaultAccent.
func WithAccent(content []byte, accent string) []byte {
	content = bytes.ReplaceAll(content, []byte(DefaultAccent), []byte(accent))
	return bytes.ReplaceAll(content, []byte(onAccentMark), []byte(TextOn(accent)))
}

// KeepForever is the Cache-Control of a file whose address has its hash.
const KeepForever = "public, max-age=31536000, immutable"

// TextOn is black or white, whichever has the higher contrast on a colour (WCAG 2.2, contrast ratio).
func TextOn(color string) string {
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
