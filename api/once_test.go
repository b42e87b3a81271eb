package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document names the header for the operations that take it, and for no others.
func TestOpenAPINamesTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	d := document()
	for _, o := range d.Operations() {
		names, _ := d.In(o, "parameters").([]any)
		named := slices.ContainsFunc(names, func(p any) bool { return d.Of(p, "name") == idempotencyHeader })
		require.Equal(t, routeOf(t, o).keying() != keyRefused, named, o.ID)
		for status, answer := range d.In(o, "responses").(map[string]any) {
			if named && status < "300" {
				require.NotNil(t, d.Of(answer, "headers", replayedHeader), "%s %s", o.ID, status)
			}
		}
	}
}

// An operation that takes no Idempotency-Key says so, whatever else is wrong, but after the check of the API key.
func TestIdempotencyKeyIsNeverIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, r := range routes() {
		path := strings.NewReplacer("{tenant}", "acme", "{id}", "ep_00000000000000000000000000").Replace(r.path)
		given := header(idempotencyHeader, "k")
		if r.keying() == keyRefused {
			a := b.ok(t, http.StatusBadRequest, "operator", r.method, path, "", given)
			require.Equal(t, idempotencyHeader, fieldsOf(t, a)[0], r.id)
			require.Contains(t, a.text, "is not supported here: ", r.id)
		}
		a := b.ok(t, http.StatusBadRequest, "operator", r.method, path, "", header(idempotencyHeader, strings.Repeat("x", 256)))
		require.Equal(t, idempotencyHeader, fieldsOf(t, a)[0], r.id)
		if r.scope != scopeNone {
			b.ok(t, http.StatusUnauthorized, "", r.method, path, "", given)
		}
		if r.scope > 1 && strings.Contains(r.path, "{tenant}") {
			b.ok(t, http.StatusForbidden, "ingest", r.method, path, "", given)
		}
	}
}
