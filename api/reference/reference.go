// Package reference makes the pages at /docs from the OpenAPI document and from docs/errors.md: a page for each group of operations,
// one for the types and one for the errors, and the files that these pages load.
package reference

import (
	_ "embed"
	"fmt"
	"html/template"

	"github.com/yuin/goldmark"

	"github.com/everpost/everpost/internal/look"
)

// root is the path of the first page. Every other one is below it.
const root = "/docs"

// The names of pages and files that are no groups.
const (
	typesPage  = "types"
	errorsPage = "errors"
	styleFile  = "reference.css"
	scriptFile = "reference.js"
	iconFile   = "icon.svg"
)

var (
	//go:embed assets/reference.css
	style []byte
	//go:embed assets/reference.js
	script []byte
	//go:embed templates/page.html
	templateText string
)

// Operation is an operation of the document.
type Operation struct {
	ID     string
	Method string
	Path   string // /v1/tenants/{tenant}
	Scope  string // the smallest scope of a key that suffices; "" if none is needed
}

// ErrorAddress is the path of the text about a problem with this code.
func ErrorAddress(code string) string { return root + "/" + errorsPage + "#" + code }

// Config is what the pages are made of.
type Config struct {
	Document   []byte      // the OpenAPI document, as YAML
	Errors     string      // docs/errors.md
	Operations []Operation // in the order in which they are shown
	Accent     string      // #rrggbb; defaults to Everpost's
	Console    bool        // whether the installation has a console
}

// Make makes all pages and files, by their names: "" is the first page. An error means that the document is wrong.
func Make(c Config) (map[string]look.File, error) {
	if c.Accent == "" {
		c.Accent = look.DefaultAccent
	}
	document, err := parse(c.Document)
	if err != nil {
		return nil, err
	}
	files := map[string]look.File{
		styleFile: look.Style(c.Accent, style...), scriptFile: look.Script(script), iconFile: look.Icon(c.Accent),
	}
	shape, err := template.New("page").Parse(templateText)
	if err != nil {
		return nil, fmt.Errorf("read the template of the reference: %w", err)
	}
	p := &pages{config: c, document: document, markdown: newMarkdown(), shape: shape, files: files}
	if err := p.make(); err != nil {
		return nil, err
	}
	return files, nil
}

// pages makes the pages.
type pages struct {
	config   Config
	document node
	markdown goldmark.Markdown
	shape    *template.Template
	files    map[string]look.File
}
