package api

import (
	"bytes"
	_ "embed"
	"net/http"
	"strconv"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPIDocument returns the document with the version of this build. The version is quoted,
// because YAML reads 1.10 as a number.
func openAPIDocument(version string) []byte {
	return bytes.Replace(openAPISource, []byte("version: dev"), []byte("version: "+strconv.Quote(version)), 1)
}

// documentHandler writes the OpenAPI document.
type documentHandler struct {
	text []byte
	page func() ([]byte, error) // for people
}

// newDocumentHandler makes the page on its first request, with the operations in the order of the routes.
func newDocumentHandler(version string, routes []route) documentHandler {
	text := openAPIDocument(version)
	return documentHandler{text: text, page: docsOf(text, routes)}
}

func (h *documentHandler) get(c call) error {
	c.Response().Header().Set("Cache-Control", "no-cache")
	return c.Blob(http.StatusOK, "application/yaml", h.text) // RFC 9512
}

// getPage writes the document as an HTML page, without scripts and external resources.
func (h *documentHandler) getPage(c call) error {
	text, err := h.page()
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	return c.Blob(http.StatusOK, "text/html; charset=utf-8", text)
}
