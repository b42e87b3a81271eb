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

func (s *Server) getOpenAPI(c call) error {
	c.Response().Header().Set("Cache-Control", "no-cache")
	return c.Blob(http.StatusOK, "application/yaml", s.openAPI) // RFC 9512
}
