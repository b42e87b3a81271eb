package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestOpenAPIAndRoutesAreTheSame(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for path, item := range at(document(), "paths").(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if method != "parameters" {
				documented[strings.ToUpper(method)+" "+path], _ = operation.(map[string]any)["operationId"].(string)
			}
		}
	}
	routed := map[string]string{}
	for _, r := range routes() {
		routed[r.method+" "+r.path] = r.id
	}
	require.Equal(t, routed, documented)
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(routed))), len(routed), "operation ids are unique")
}

func TestOpenAPISaysWhatEachOperationNeeds(t *testing.T) {
	t.Parallel()
	for _, r := range routes() {
		operation := at(document(), "paths", r.path, strings.ToLower(r.method)).(map[string]any)
		require.NotEmpty(t, operation["summary"], r.id)
		require.NotEmpty(t, operation["tags"], r.id)
		require.NotNil(t, at(operation, "responses", "default"), r.id)
		_, open := operation["security"]
		require.Equal(t, r.scope == scopeNone, open, r.id)
		if r.scope != scopeNone && r.id != "listRetryPolicies" && r.id != "previewRetryPolicy" {
			scope := strings.ToUpper(r.scope.String()[:1]) + r.scope.String()[1:]
			require.True(t, strings.HasPrefix(operation["description"].(string), scope), r.id)
		}

		item := at(document(), "paths", r.path).(map[string]any)
		inPath, _ := item["parameters"].([]any)
		for part := range strings.SplitSeq(r.path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			require.True(t, slices.ContainsFunc(inPath, func(p any) bool {
				return at(p, "name") == strings.Trim(part, "{}") && at(p, "in") == "path"
			}), "%s: %s", r.id, part)
		}
	}
}

// Every schema of the document compiles, and every example passes its own.
func TestOpenAPISchemasAndExamples(t *testing.T) {
	t.Parallel()
	for name := range at(document(), "components", "schemas").(map[string]any) {
		_, err := schemas()(pointerTo("components", "schemas", name))
		require.NoError(t, err, name)
	}
	examples := 0
	var walk func(node any, path ...string)
	walk = func(node any, path ...string) {
		m, ok := node.(map[string]any)
		if !ok {
			return
		}
		if example, ok := m["example"]; ok && m["schema"] != nil {
			schema, err := schemas()(pointerTo(append(slices.Clone(path), "schema")...))
			require.NoError(t, err)
			require.NoError(t, schema.Validate(example), path)
			examples++
		}
		for name, child := range m {
			walk(child, append(slices.Clone(path), name)...)
		}
	}
	walk(document())
	require.Greater(t, examples, 8)
}

func TestOpenAPIIsServedWithTheVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server = New(Config{Version: "1.10", Now: testNow})
	a := b.ok(t, http.StatusOK, "", "GET", "/openapi.yaml", "")
	var parsed struct {
		OpenAPI string
		Info    struct{ Version string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(a.text), &parsed))
	require.Equal(t, "3.1.0", parsed.OpenAPI)
	require.Equal(t, "1.10", parsed.Info.Version)
}
