package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// No operation accepts a parameter that the document lacks, and each operation with parameters reads
// them itself.
func TestUnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	d := document()
	for _, o := range d.Operations() {
		inQuery := map[string]bool{}
		parameters, _ := d.In(o, "parameters").([]any)
		for _, p := range parameters {
			if d.Of(p, "in") == "query" {
				inQuery[d.Of(p, "name").(string)] = true
			}
		}
		require.Equal(t, len(inQuery) > 0, routeOf(t, o).takesParameters(), o.ID)

		b := setup(t)
		path := fill(routeOf(t, o), "acme")
		b.refused(t, "operator", o.Method, path+"?no_such=1&%61nother", `{}`, "another", "is not a known parameter", "no_such", "is not a known parameter")
		b.refused(t, "operator", o.Method, path+"?a=%zz", `{}`, "query", "is not a valid query string")
		for _, name := range []string{"limit", "cursor", "state", "tenant"} {
			a := b.do(t, "operator", o.Method, path+"?"+name+"=5", `{}`)
			if !inQuery[name] {
				require.Equal(t, http.StatusBadRequest, a.StatusCode, "%s with %s", o.ID, name)
				require.Contains(t, a.text, `"field":"`+name+`"`)
			}
		}
		require.Empty(t, b.calls, "%s did nothing", o.ID)
	}
}

// A caller without permission gets that error, and none about its parameters.
func TestParametersAreCheckedAfterTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/tenants/acme?x=1", "")
	b.ok(t, http.StatusForbidden, "ingest", "GET", "/v1/tenants/acme?x=1", "")
	b.ok(t, http.StatusNotFound, "foreign", "GET", "/v1/tenants/acme?x=1", "")
}

func TestOnlyJSONInUTF8IsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for given, want := range map[string]int{
		"":                                                http.StatusOK,
		"application/json":                                http.StatusOK,
		"Application/JSON":                                http.StatusOK,
		"application/json; charset=utf-8":                 http.StatusOK,
		"application/json;charset=UTF-8":                  http.StatusOK,
		`application/json; charset="utf-8"`:               http.StatusOK,
		"application/json; charset=utf8":                  http.StatusOK,
		"application/json; indent=2":                      http.StatusOK,
		"application/json;":                               http.StatusOK,
		"application/json; charset=utf-16":                http.StatusUnsupportedMediaType,
		"application/json; charset=latin1":                http.StatusUnsupportedMediaType,
		`application/json; Charset="utf-16"`:              http.StatusUnsupportedMediaType,
		"application/json; charset=utf-8; charset=utf-16": http.StatusUnsupportedMediaType,
		"application/json; charset":                       http.StatusUnsupportedMediaType,
		"application/jsonx":                               http.StatusUnsupportedMediaType,
		"text/plain":                                      http.StatusUnsupportedMediaType,
		"/":                                               http.StatusUnsupportedMediaType,
	} {
		a := b.ok(t, want, "operator", "PUT", "/v1/tenants/acme", `{}`, header("Content-Type", given))
		if want != http.StatusOK {
			require.Contains(t, a.json["detail"], "the body must be", given)
		}
	}
	a := b.ok(t, http.StatusUnsupportedMediaType, "operator", "PUT", "/v1/tenants/acme", `{}`, header("Content-Type", "application/json; charset=utf-16"))
	require.Equal(t, "the body must be in UTF-8: Content-Type names another charset", a.json["detail"])
}
