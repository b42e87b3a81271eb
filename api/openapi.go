package api

import (
	"bytes"
	_ "embed"
	"net/http"
	"strconv"
	"sync"

	"github.com/everpost/everpost/api/reference"
	"github.com/everpost/everpost/docs"
	"github.com/everpost/everpost/internal/look"
	"github.com/everpost/everpost/internal/webhook"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPIDocument returns the document with the version of this build. The version is quoted,
// because YAML reads 1.10 as a number.
func openAPIDocument(version string) []byte {
	return bytes.Replace(openAPISource, []byte("version: dev"), []byte("version: "+strconv.Quote(version)), 1)
}

// documentHandler writes the OpenAPI document, and the pages for people that are made from it.
type documentHandler struct {
	text  []byte
	pages func() (map[string]look.File, error)
}

// newDocumentHandler makes the pages on the first request for one, with the operations in the order of the routes.
func newDocumentHandler(c *Config, routes []route) documentHandler {
	text := openAPIDocument(c.Version)
	of := reference.Config{Document: text, Errors: docs.Errors, Accent: c.Accent, Console: c.ConsoleLinks != nil}
	for _, r := range routes {
		o := reference.Operation{ID: r.id, Method: r.method, Path: r.path}
		if r.scope != scopeNone {
			o.Scope = r.scope.String()
		}
		of.Operations = append(of.Operations, o)
	}
	return documentHandler{text: text, pages: sync.OnceValues(func() (map[string]look.File, error) { return reference.Make(of) })}
}

func (h *documentHandler) get(c call) error {
	c.Response().Header().Set("Cache-Control", "no-cache")
	return c.Blob(http.StatusOK, "application/yaml", h.text) // RFC 9512
}

// getPage writes a page of the reference, or a file that it loads. Pages work without scripts, and load nothing from elsewhere.
func (h *documentHandler) getPage(c call) error {
	q := c.parameters("v")
	if err := q.problem(); err != nil {
		return err
	}
	pages, err := h.pages()
	if err != nil {
		return err
	}
	file, known := pages[c.Param("page")] // "" for the first one
	if !known {
		return webhook.NotFound("page")
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "no-cache")
	if file.Immutable(q.values) {
		header.Set("Cache-Control", look.KeepForever)
	}
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	return c.Blob(http.StatusOK, file.Media, file.Content)
}
