package api

import (
	"bytes"
	_ "embed"
	"net/http"
	"strconv"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPIDocument is the document with the version of this build in it, quoted: 1.10
// is a number in YAML.
func openAPIDocument(version string) []byte {
	return bytes.Replace(openAPISource, []byte("version: dev"), []byte("version: "+strconv.Quote(version)), 1)
}

func (s *Server) getOpenAPI(c call) error {
	c.Response().Header().Set("Cache-Control", "no-cache")
	return c.Blob(http.StatusOK, "application/yaml", s.openAPI) // RFC 9512
}
