package admission

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestLooksLikeLogIn(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/login": true, "/ServiceLogin": true, "/users/sign_in": true, "/log-in/now": true, "/oauth2/authorize": true, "/saml2/idp": true,
		"/auth/realms/x": true, "/logon.aspx": true, "": false, "/": false, "/macros/echo": false, "/done": false, "/author/7": false,
		"/blog/introduction": false, "/blog-index": false, "/thanks": false,
	} {
		require.Equal(t, want, looksLikeLogIn(path), path)
	}
}

// Redirects that count as delivered are worth a warning when they lead elsewhere than before, or to a log-in.
func TestRedirectsStray(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctl, req := New(Config{}), newRequest()
		answered := func(target string) webhook.Strayed {
			t.Helper()
			elapse(time.Minute)
			result := delivered(time.Millisecond)
			if target != "" {
				result.Error = webhook.RedirectError + target
			}
			results(t, ctl, req, 1, 0, result)
			strayed := ctl.Health(req.Endpoint).Strayed
			unhealthy := 0
			ctl.EachUnhealthy(func(webhook.EndpointID, webhook.Observation) { unhealthy++ })
			require.Equal(t, strayed != webhook.Strayed{}, unhealthy == 1, "it is shared, so that every process warns")
			strayed.At = time.Time{}
			return strayed
		}
		require.Zero(t, answered(""))
		require.Zero(t, answered("https://script.example/echo"))
		require.Zero(t, answered("https://script.example/other"))
		require.Equal(t, webhook.Strayed{To: "https://script.example/login"}, answered("https://script.example/login"))
		require.Zero(t, answered("https://script.example/echo"))
		require.Equal(t, webhook.Strayed{To: "https://id.example/x", Before: "script.example"}, answered("https://id.example/x"))
		began := ctl.Health(req.Endpoint).Strayed.At
		require.Equal(t, webhook.Strayed{To: "https://id.example/y", Before: "script.example"}, answered("https://id.example/y"))
		require.Equal(t, began, ctl.Health(req.Endpoint).Strayed.At, "since the first such answer")
		require.Zero(t, answered("https://script.example/echo"), "it is back")
		require.NotZero(t, answered("https://id.example/x"))
		require.Zero(t, answered(""), "a 2xx")
		require.NotZero(t, answered("https://id.example/x"), "a 2xx makes no other host right")
		require.Equal(t, webhook.Strayed{To: "https://sso.example/x", Before: "script.example"}, answered("https://sso.example/x"))
		require.NotZero(t, answered("https://id.example/x"))
		require.Zero(t, answered("https://Script.example/echo"), "it is back")
		require.Zero(t, answered("https://"+strings.Repeat("x", maxRedirect)+".example/login"), "too long to be looked at")
		require.NotZero(t, answered("https://id.example/x"))
		ctl.Reset(req.Endpoint)
		require.Zero(t, answered("https://id.example/x"), "its URL was changed, or it was resumed")
	})
}
