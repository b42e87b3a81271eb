package api

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestOpenAPIAndRoutesAreTheSame(t *testing.T) {
	t.Parallel()
	documented, routed := map[string]string{}, map[string]string{}
	for _, o := range document().Operations() {
		documented[o.Method+" "+o.Path] = o.ID
	}
	for _, r := range routes() {
		routed[r.method+" "+r.path] = r.id
	}
	require.Equal(t, routed, documented)
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(routed))), len(routed), "operation ids are unique")
}

// routeOf returns the route of an operation.
func routeOf(t *testing.T, o openapitest.Operation) route {
	t.Helper()
	i := slices.IndexFunc(routes(), func(r route) bool { return r.id == o.ID })
	require.GreaterOrEqual(t, i, 0, o.ID)
	return routes()[i]
}

func TestOpenAPISaysWhatEachOperationNeeds(t *testing.T) {
	t.Parallel()
	d := document()
	for _, o := range d.Operations() {
		r := routeOf(t, o)
		require.NotEmpty(t, d.In(o, "summary"), o.ID)
		require.NotEmpty(t, d.In(o, "tags"), o.ID)
		require.Equal(t, r.scope == scopeNone, d.In(o, "security") != nil, o.ID)
		require.Equal(t, r.scope, scopeIn(t, o), o.ID)

		inPath, _ := d.At("paths", o.Path, "parameters").([]any)
		for part := range strings.SplitSeq(o.Path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			require.True(t, slices.ContainsFunc(inPath, func(p any) bool {
				return d.Of(p, "name") == strings.Trim(part, "{}") && d.Of(p, "in") == "path"
			}), "%s: %s", o.ID, part)
		}
	}
}

// scopeIn returns the scope that the document requires for an operation: the first word of its
// description.
func scopeIn(t *testing.T, o openapitest.Operation) webhook.Scope {
	t.Helper()
	text, _ := document().In(o, "description").(string)
	for word, scope := range map[string]webhook.Scope{
		"Any key.": webhook.ScopeIngest, "Ingest.": webhook.ScopeIngest, "Admin.": webhook.ScopeAdmin, "Operator.": webhook.ScopeOperator,
	} {
		if strings.HasPrefix(text, word) {
			return scope
		}
	}
	require.NotNil(t, document().In(o, "security"), "%s: the description does not begin with the scope", o.ID)
	return scopeNone
}

// Every operation has a schema and an example for its request and its response, and lists the errors
// that it can return.
func TestOpenAPIIsComplete(t *testing.T) {
	t.Parallel()
	d := document()
	for _, o := range d.Operations() {
		var content []any
		if body := d.In(o, "requestBody"); body != nil {
			content = append(content, d.Of(body, "content"))
		}
		responses := d.In(o, "responses").(map[string]any)
		require.NotContains(t, responses, "default", "%s: the answers are listed one by one", o.ID)
		var errors []string
		succeeds := false
		for status := range responses {
			if status >= "400" {
				errors = append(errors, status)
				continue
			}
			succeeds = true
			if status != "204" {
				content = append(content, d.In(o, "responses", status, "content"))
			}
		}
		require.True(t, succeeds, o.ID)
		for _, media := range content {
			if o.ID != "getDocsPage" { // which has pages and files
				require.Len(t, media, 1, o.ID)
			}
			for name, of := range media.(map[string]any) {
				require.NotNil(t, d.Of(of, "schema"), "%s: %s", o.ID, name)
				if strings.Contains(name, "json") {
					example, examples := d.Of(of, "example"), d.Of(of, "examples")
					require.True(t, example != nil || examples != nil, "%s: %s has no example", o.ID, name)
				}
			}
		}
		slices.Sort(errors)
		require.Equal(t, errorsOf(t, o), errors, o.ID)
	}
}

// errorsOf returns the statuses with which an operation can fail, by rule.
func errorsOf(t *testing.T, o openapitest.Operation) []string {
	t.Helper()
	errors := []string{"400", "500"} // 400: an unknown parameter
	r := routeOf(t, o)
	if r.scope == scopeNone {
		if strings.Contains(o.Path, "{") {
			errors = append(errors, "404")
		}
		slices.Sort(errors)
		return errors
	}
	errors = append(errors, "401", "429", "503")
	if r.scope > webhook.ScopeIngest {
		errors = append(errors, "403")
	}
	if strings.Contains(o.Path, "{tenant}") {
		errors = append(errors, "404")
	}
	body := document().In(o, "requestBody") != nil
	if body {
		errors = append(errors, "408", "413", "415")
	}
	if o.Method != http.MethodGet && strings.Contains(o.Path, "{tenant}") {
		errors = append(errors, "409") // the state, a quota, or a concurrent change
	}
	if o.ID == "createLogInLink" || o.ID == "putInstallationNotifications" {
		errors = append(errors, "409") // the console is switched off; a concurrent change
	}
	if strings.Contains(o.Path, "/event-types/{name}") {
		if o.Method == http.MethodPut {
			errors = append(errors, "409") // the catalogue is full
		} else {
			errors = append(errors, "404")
		}
		if o.Method != http.MethodGet {
			errors = append(errors, "412")
		}
	}
	if o.ID == "importEventTypes" {
		errors = append(errors, "409") // the catalogue is full
	}
	if o.ID == "exportEventTypes" {
		errors = append(errors, "413")
	}
	if o.ID == "getEventPayload" || o.ID == "testFilter" {
		errors = append(errors, "410")
	}
	if r.keying() != keyRefused {
		errors = append(errors, "422")
	}
	slices.Sort(errors)
	return errors
}

// Every schema of the document compiles, and every example is valid.
func TestOpenAPISchemasAndExamples(t *testing.T) {
	t.Parallel()
	d := document()
	for name := range d.At("components", "schemas").(map[string]any) {
		_, err := d.Schema("components", "schemas", name)
		require.NoError(t, err, name)
	}
	examples := 0
	d.Examples(func(place []string, example any) {
		require.NoError(t, d.CheckValue(example, append(slices.Clone(place), "schema")...), place)
		examples++
	})
	require.Greater(t, examples, 50)
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

// TimeOrAge has the ages that are read, and no other. A pattern cannot say how long they may be.
func TestAgesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	forms := document().At("components", "schemas", "TimeOrAge", "anyOf").([]any)
	pattern := regexp.MustCompile(document().Of(forms[1], "pattern").(string))
	check := func(t require.TestingT, text string) {
		_, ok := webhook.ParseAge(text)
		require.Equal(t, ok, pattern.MatchString(text), "%q", text)
	}
	for _, text := range []string{"", "0", "+0", "-0s", "+1h", "1h30m", "1.h", ".5h", ".h", "1d", "1d2h", "1000w", "5", "1µs", "1μs", "1h ", "1H"} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) { // none is longer than 1,000 weeks
		check(t, rapid.StringMatching(`[-+]?([0-9]{0,3}(\.[0-9]{0,2})?(ns|us|ms|[smhdwy ])){0,3}[0-9]{0,3}`).Draw(t, "text"))
	})
}
