package openapitest_test

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/openapitest"
)

// For every operation, valid and invalid requests are generated from the document's
// schemas: no response is a 5xx or violates the document (the transport checks that), and
// invalid requests are rejected.
func TestGeneratedRequests(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rounds := 1 // see TestMain
	if os.Getenv("EVERPOST_TEST_LONG") != "" {
		rounds = 50
	}
	for _, tenant := range []string{"generated", "deleted"} {
		w.ok(http.StatusCreated, "operator", "PUT", "/v1/tenants/"+tenant, `{}`)
	}
	g := generator{document: document(), known: map[string][]any{
		"url": {w.hook}, "endpoint_id": {w.endpoint(own)}, "endpoint_ids": {[]any{w.endpoint(own)}}, "preset": {"default", "fast"}, "secret": {nil},
		"openapi": {nil}, "schemas": {map[string]any{"generated": map[string]any{}}}, "schema": {nil, map[string]any{}}, "examples": {nil, []any{1}},
	}}
	for _, o := range document().Operations() {
		succeeded, refused := 0, 0
		for round := 0; round < rounds || succeeded == 0 && round < rounds+20; round++ { // more rounds until one succeeds
			rapid.Check(t, func(t *rapid.T) {
				id := ""
				switch {
				case strings.Contains(o.Path, "{id}"):
					id = w.make(own, o)
				case strings.Contains(o.Path, "{name}"):
					id = w.eventType()
				}
				if w.generated(t, g, o, id) < 300 {
					succeeded++
				} else {
					refused++
				}
			})
		}
		t.Logf("%s: %d succeeded, %d were refused", o.ID, succeeded, refused)
		require.Positive(t, succeeded, "nothing that was made for %s was taken", o.ID)
	}
}

func (w *world) generated(t *rapid.T, g generator, o openapitest.Operation, id string) (status int) {
	tenant := own
	switch o.ID {
	case "putTenant", "updateTenant":
		tenant = "generated" // limits would affect the other operations
	case "deleteTenant":
		tenant = "deleted" // its id cannot be reused
	}
	if rapid.IntRange(0, 9).Draw(t, "another id") == 0 {
		id = url.PathEscape(rapid.String().Draw(t, "id"))
	}
	path := strings.NewReplacer("{tenant}", tenant, "{id}", id, "{name}", id, "{page}", "errors").Replace(o.Path)
	query := url.Values{}
	for name, value := range g.query(t, o) {
		query.Set(name, value)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body := g.body(t, o)
	as := rapid.SampledFrom([]string{"operator", "operator", "admin", "ingest"}).Draw(t, "as")
	a := w.do(as, o.Method, path, body)
	if a.status >= 500 {
		t.Fatalf("%s as %s: %s %s %q: %d %s", o.ID, as, o.Method, path, body, a.status, a.text)
	}
	if body == "" || a.status >= 400 {
		return a.status
	}
	err := document().CheckJSON([]byte(body), "paths", o.Path, strings.ToLower(o.Method), "requestBody", "content", "application/json", "schema")
	require.NoError(t, err, "%s took what the document forbids: %q", o.ID, body)
	return a.status
}
