package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// What could not be counted is a dash; a count that was cut off says so, and nothing is said of zero.
func TestUndeliveredCounts(t *testing.T) {
	t.Parallel()
	templates, err := parseTemplates(time.Now)
	require.NoError(t, err)
	render := func(template string, data any) string {
		var b strings.Builder
		require.NoError(t, templates.ExecuteTemplate(&b, template, data))
		return b.String()
	}
	bound, none := new(100), new(0)
	require.Equal(t, "–", render("undelivered", client.TroubledEndpoint{}))
	got := render("undelivered", client.TroubledEndpoint{Waiting: bound, Held: none, GivenUp: new(7)})
	require.Contains(t, got, "100+ waiting")
	require.NotContains(t, got, "held")
	require.Contains(t, got, ">7 dead letters")
	require.Contains(t, render("undelivered", client.TroubledEndpoint{Waiting: none, Held: none, GivenUp: new(1)}), ">1 dead letter<")
}

// What a person was told of a change stays until they leave the page: no script takes it away.
func TestBannersStay(t *testing.T) {
	t.Parallel()
	require.NotContains(t, string(sharedScript)+string(script), "flash")
}
