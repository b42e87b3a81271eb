package cli_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestAttention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	show := func() string {
		shown := call{args: []string{"attention", "--url=" + b.url, "--key=" + operatorKey}}.run(t)
		require.Zero(t, shown.code, shown.stderr)
		return shown.stdout
	}
	id := b.endpoint()
	b.ok("endpoints", "pause", id, "--reason=it moves")
	out := show()
	require.Regexp(t, `acme +`+id+` +paused +0 +0 +0 +paused by hand \(it moves\)`, out)
	require.Regexp(t, `acme +1 +0 +0 +0`, out)
	refused := call{args: []string{"attention", "--url=" + b.url, "--key=" + b.key("acme", webhook.ScopeAdmin)}}.run(t)
	require.NotZero(t, refused.code)
}

// Counts that the API cuts off say so, what could not be counted is a dash, and an endpoint without a cause has its summary.
func TestAttentionShowsBounds(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"tenants":[{"tenant_id":"acme","name":"Acme","endpoints":2,"waiting":1000,"dead_letters":1000,"dead_letters_last_hour":1000}],
			"endpoints":[
				{"tenant_id":"acme","endpoint_id":"ep_a","condition":"paused","cause":null,"summary":"Paused.","waiting":100,"held":99,"given_up":100},
				{"tenant_id":"acme","endpoint_id":"ep_b","condition":"failing","cause":"unknown host name","summary":"It fails.",
					"waiting":null,"held":null,"given_up":null}],
			"more":false}`))
	}))
	t.Cleanup(api.Close)
	shown := call{args: []string{"attention", "--url=" + api.URL, "--key=" + operatorKey}}.run(t)
	require.Zero(t, shown.code, shown.stderr)
	require.Regexp(t, `ep_a +paused +100\+ +99 +100\+ +Paused\.`, shown.stdout)
	require.Regexp(t, `ep_b +failing +- +- +- +unknown host name`, shown.stdout)
	require.Regexp(t, `acme +2 +1000\+ +1000\+ +1000\+`, shown.stdout)
}
