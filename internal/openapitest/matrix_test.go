package openapitest_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/webhook"
)

// target is the object of a request, from the view of a caller of the tenant acme.
type target struct {
	kind   string // own, foreign, nonexistent or malformed
	tenant string // in the path
	id     string // in the path; "" where there is none
}

// targets returns all kinds of targets of an operation. A foreign id is tried under its own
// tenant and under the caller's.
func (w *world) targets(o openapitest.Operation) []target {
	w.Helper()
	if !strings.Contains(o.Path, "{id}") {
		return []target{{"own", own, ""}, {"foreign", foreign, ""}, {"nonexistent", "nobody", ""}, {"malformed", "no%00such", ""}}
	}
	mine, theirs := w.make(own, o), w.make(foreign, o)
	nobodys := theirs[:len(theirs)-2] + map[bool]string{true: "1", false: "0"}[theirs[len(theirs)-2] != '1'] + theirs[len(theirs)-1:]
	return []target{
		{"own", own, mine},
		{"foreign", foreign, theirs},
		{"foreign", own, theirs},
		{"nonexistent", own, nobodys},
		{"nonexistent", "nobody", nobodys},
		{"malformed", own, "no-id"},
		{"malformed", own, strings.ToUpper(theirs)},
		{"malformed", "no%00such", theirs},
	}
}

// wanted is the expected status: it contains all the documented access rules.
func wanted(t *testing.T, o openapitest.Operation, caller string, at target) int {
	t.Helper()
	needs, open := scopeOf(t, o)
	has := map[string]webhook.Scope{"operator": webhook.ScopeOperator, "admin": webhook.ScopeAdmin, "ingest": webhook.ScopeIngest}[caller]
	tenanted := strings.Contains(o.Path, "{tenant}")
	there := at.kind == "own" || at.kind == "foreign" && at.tenant == foreign
	switch {
	case open:
		return succeeds(o, at)
	case has == 0:
		return http.StatusUnauthorized
	case tenanted && has < webhook.ScopeOperator && at.tenant != own:
		return http.StatusNotFound
	case has < needs:
		return http.StatusForbidden
	case o.ID == "putTenant" && at.kind == "malformed":
		return http.StatusBadRequest
	case tenanted && !there && o.ID != "putTenant":
		return http.StatusNotFound
	}
	return succeeds(o, at)
}

// succeeds is the documented status of an operation's success.
func succeeds(o openapitest.Operation, at target) int {
	switch o.ID {
	case "deleteTenant":
		return http.StatusNoContent // without everything
	case "putEventType":
		return http.StatusOK // it is there
	case "putTenant":
		return map[bool]int{true: http.StatusCreated, false: http.StatusOK}[at.kind == "nonexistent"]
	}
	for status := range document().In(o, "responses").(map[string]any) {
		if n, err := strconv.Atoi(status); err == nil && n < 300 {
			return n
		}
	}
	return 0
}

// Every operation of the document × own, foreign, nonexistent and malformed × every kind of
// key. The responses for foreign, nonexistent and malformed ids are identical to the byte.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := setup(t)
	tried := 0
	for _, o := range document().Operations() {
		for _, caller := range []string{"none", "expired", "revoked", "ingest", "admin", "operator"} {
			var notFound []answer
			for _, at := range w.aims(o, caller) {
				want := wanted(t, o, caller, at)
				path := strings.NewReplacer("{tenant}", at.tenant, "{id}", at.id, "{page}", "errors").Replace(o.Path)
				if strings.Contains(path, "{name}") { // each is a new type
					path = strings.ReplaceAll(path, "{name}", w.eventType())
				}
				body := ""
				if o.Method != http.MethodGet {
					body = w.body(o, map[bool]string{true: foreign, false: own}[at.tenant == foreign])
				}
				a := w.ok(want, caller, o.Method, path, body, "X-Request-Id", "matrix")
				tried++
				if a.status == http.StatusNotFound {
					a.header.Del("Date")
					notFound = append(notFound, a)
				}
			}
			for _, a := range notFound {
				require.Equal(t, notFound[0], a, "%s as %s", o.ID, caller)
			}
		}
	}
	require.Greater(t, tried, 1000)
}

// aims creates the targets of one caller's requests.
func (w *world) aims(o openapitest.Operation, caller string) []target {
	w.Helper()
	switch {
	case !strings.Contains(o.Path, "{tenant}"):
		return []target{{kind: "own"}}
	case o.ID == "deleteTenant" && caller == "operator":
		for _, tenant := range []string{"gone", "gone-too"} {
			w.ok(http.StatusCreated, "operator", "PUT", "/v1/tenants/"+tenant, `{}`)
		}
		return []target{{"own", "gone", ""}, {"own", "gone-too", ""}, {"nonexistent", "nobody", ""}, {"malformed", "no%00such", ""}}
	case o.ID == "putTenant" && caller == "operator":
		return []target{{"own", own, ""}, {"foreign", foreign, ""}, {"nonexistent", "new", ""}, {"malformed", "no%00such", ""}}
	}
	return w.targets(o)
}

// The document covers every kind of object, so that the matrix does.
func TestTheMatrixCoversEveryKindOfThing(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, o := range document().Operations() {
		if strings.Contains(o.Path, "{id}") {
			kinds = append(kinds, strings.Split(o.Path, "/")[4])
		}
	}
	slices.Sort(kinds)
	require.Equal(t, []string{"dead-letters", "deliveries", "endpoints", "events", "keys", "replays"}, slices.Compact(kinds))
}
