package egress

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Credentials that a receiver echoes are not stored.
func TestNoEchoOfCredentials(t *testing.T) {
	t.Parallel()
	a := setupAuth(t)
	a.tokens.Default(tokenStep("issued/canary", 3600))
	client := a.request("ep_1").Auth
	basic := base64.StdEncoding.EncodeToString([]byte("shop:canary pass"))
	for sent, auth := range map[string]webhook.Auth{
		"Bearer issued/canary": client,
		"Bearer token/canary":  {Kind: webhook.AuthBearer, Token: "token/canary"},
		"Basic " + basic:       {Kind: webhook.AuthBasic, Username: "shop", Password: "canary pass"},
	} {
		_, token, _ := strings.Cut(sent, " ")
		said := "you sent " + sent + ", that is " + token + " or canary pass. " + strings.ReplaceAll(token, "/", `\/`)
		long := strings.Repeat("x", MaxStoredBytes-len(token)/2) + token
		longer := strings.Repeat(token+" ", 2000)
		a.Script("/hook",
			receivertest.Step{Status: 400, Body: said, Header: map[string]string{"X-Echo": "authorization=" + sent, "X-Other": "kept"}},
			receivertest.Step{Status: 400, Body: long}, receivertest.Step{Status: 400, Body: longer},
			receivertest.Step{Raw: "HTTP/1.1 400 No\r\nContent-Length: 999\r\n\r\n" + token[:len(token)-3]},
		)
		request := Request{EndpointID: "ep_1", URL: a.URL() + "/hook", Auth: auth, Timeout: patience}
		r := a.client.Send(t.Context(), request)
		requireFailure(t, r, retry.FailureNone, 400)
		require.Equal(t, sent, a.authorizations()[a.Count()-1])
		for _, secret := range []string{token, strings.ReplaceAll(token, "/", `\/`)} {
			require.NotContains(t, string(r.Body), secret)
		}
		if auth.Kind == webhook.AuthBasic {
			require.NotContains(t, string(r.Body), "canary")
		}
		require.Contains(t, string(r.Body), "you sent [redacted], that is [redacted] or ")
		require.Equal(t, []string{"authorization=[redacted]"}, r.Header["X-Echo"])
		require.Equal(t, []string{"kept"}, r.Header["X-Other"])

		r = a.client.Send(t.Context(), request)
		require.True(t, r.Truncated)
		require.LessOrEqual(t, len(r.Body), MaxStoredBytes)
		require.NotContains(t, string(r.Body), token[:4], "cut in two at the excerpt's end")
		r = a.client.Send(t.Context(), request)
		require.LessOrEqual(t, len(r.Body), MaxStoredBytes)
		require.NotContains(t, string(r.Body), token[:8])
		r = a.client.Send(t.Context(), request)
		requireFailure(t, r, retry.FailureUnexpectedEOF, 400)
		require.Equal(t, "[redacted]", string(r.Body), "the receiver broke off")
	}
}
