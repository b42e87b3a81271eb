package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	notFollowing = "is set and does not follow the URL to another scheme, host or port: send it again in this request, or null"
	notStored    = "is [redacted], which does not stand for the stored value where the URL moves to another scheme, host or port; send the value itself"
	notAValue    = "is [redacted], which is not accepted here; send the value itself"
)

// aCertificate is a client certificate with its key, in the API's form.
func aCertificate(t *testing.T) string {
	t.Helper()
	c, _ := certificate(t, testNow().Add(-time.Hour), testNow().Add(time.Hour))
	return quoted(t, c)
}

// withCredentials creates an endpoint with credentials of every kind, and returns its path.
func (b *bundle) withCredentials(t *testing.T) (path string) {
	t.Helper()
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://receiver.example/hook","headers":{"X-Api-Key":"canary"},`+
		`"auth":{"type":"bearer","token":"canary"},"client_certificate":`+aCertificate(t)+`}`)
	return endpointsPath + "/" + a.json["id"].(string)
}

// A key that may change an endpoint cannot be used to obtain the endpoint's credentials.
func TestCredentialsDoNotFollowTheURL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.withCredentials(t)
	before := b.endpoints[0]
	auth, pair := `"auth":{"type":"bearer","token":"new"}`, `"client_certificate":`+aCertificate(t)
	all := []string{"headers", notFollowing, "auth", notFollowing, "client_certificate", notFollowing}
	for body, want := range map[string][]string{
		`{"url":"https://attacker.example/hook"}`:                                                   all,
		`{"url":"https://receiver.example:8443/hook"}`:                                              all,
		`{"url":"https://receiver.example.attacker.example/hook"}`:                                  all,
		`{"url":"https://receiver.example./hook"}`:                                                  all,
		`{"url":"https://attacker.example","headers":{}}`:                                           all[2:],
		`{"url":"https://attacker.example","headers":null,` + auth + `}`:                            all[4:],
		`{"url":"https://attacker.example","auth":null,` + pair + `}`:                               all[:2],
		`{"headers":{"x-api-key":"[redacted]"},"auth":null,` + pair + `,"url":"https://a.example"}`: {"headers.x-api-key", notStored},
		`{"url":"https://a.example","auth":null,` + pair + `,"headers":{"X-Api-Key":"[redacted]"}}`: {"headers.X-Api-Key", notStored},
		`{"url":"https://a.example","headers":{"X-Api-Key":"[redacted]"}}`: {
			"headers.X-Api-Key", notStored, "auth", notFollowing, "client_certificate", notFollowing,
		},
		`{"auth":{"type":"bearer","token":"[redacted]"}}`:                                                       {"auth.token", notAValue},
		`{"auth":{"type":"basic","username":"u","password":"[redacted]"}}`:                                      {"auth.password", notAValue},
		`{"url":"https://a.example","auth":{"type":"bearer","token":"[redacted]"},"headers":null,` + pair + `}`: {"auth.token", notAValue},
	} {
		b.refused(t, "admin", "PATCH", path, body, want...)
		b.refused(t, "operator", "PATCH", path, body, want...)
	}
	require.Equal(t, before, b.endpoints[0])

	// Another spelling of the same origin keeps them, and so does the result of GET.
	for _, url := range []string{"https://receiver.example/other?x=1", "https://RECEIVER.example/hook", "https://receiver.example:443/"} {
		b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"url":"`+url+`","headers":{"X-Api-Key":"[redacted]"}}`)
		require.Equal(t, before.Headers, b.endpoints[0].Headers)
		require.Equal(t, before.Auth, b.endpoints[0].Auth)
	}

	// A field that is set again moves along; null removes it.
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"headers":{"X-Api-Key":"mine"},"client_certificate":null,`+auth+`,"url":"https://other.example"}`)
	e := b.endpoints[0]
	require.Equal(t, []any{map[string]string{"X-Api-Key": "mine"}, "new", true}, []any{e.Headers, e.Auth.Token, e.Certificate.IsZero()})
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"url":"https://third.example","headers":null,"auth":null}`)
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"url":"https://fourth.example"}`)
	require.Equal(t, "https://fourth.example", b.endpoints[0].URL, "what has no credentials moves freely")
}

// The token URL is a part of auth, which is always replaced as a whole.
func TestClientSecretDoesNotFollowTheTokenURL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	auth := `{"type":"oauth2_client_credentials","token_url":"https://tokens.example/token","client_id":"me","client_secret":"canary"}`
	created := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://receiver.example","auth":`+auth+`}`)
	path := endpointsPath + "/" + created.json["id"].(string)
	before := b.endpoints[0]
	elsewhere := strings.Replace(auth, "tokens.example", "attacker.example", 1)
	b.refused(t, "admin", "PATCH", path, `{"auth":`+strings.Replace(elsewhere, "canary", "[redacted]", 1)+`}`, "auth.client_secret", notAValue)
	b.refused(t, "admin", "PATCH", path, `{"auth":`+strings.Replace(auth, "canary", "[redacted]", 1)+`}`, "auth.client_secret", notAValue)
	b.refused(t, "admin", "PATCH", path, `{"auth":`+strings.Replace(elsewhere, `,"client_secret":"canary"`, "", 1)+`}`, "auth.client_secret", "is required")
	b.refused(t, "admin", "PATCH", path, `{"auth":{"token_url":"https://attacker.example/token"}}`, "auth.type", "is required")
	b.refused(t, "admin", "PATCH", path, `{"url":"https://attacker.example"}`, "auth", notFollowing)
	require.Equal(t, before, b.endpoints[0])
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"auth":`+elsewhere+`}`)
	require.Equal(t, "canary", b.endpoints[0].Auth.ClientSecret, "the caller knows the secret that it sends")
}

// meanwhile changes an endpoint between the check of a request and its transaction.
type meanwhile struct {
	Endpoints

	change func(*webhook.Endpoint)
}

func (m *meanwhile) UpdateEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID,
	change func(*webhook.Endpoint) error,
) (webhook.Endpoint, error) {
	_, err := m.Endpoints.UpdateEndpoint(ctx, by, tenantID, id, func(e *webhook.Endpoint) error {
		m.change(e)
		return nil
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return m.Endpoints.UpdateEndpoint(ctx, by, tenantID, id, change)
}

// The rule applies to the endpoint at the time of the change, not at the time of the request.
func TestConcurrentlySetCredentialsDoNotFollowTheURL(t *testing.T) {
	t.Parallel()
	m := &meanwhile{}
	b := setup(t, func(c *Config) { m.Endpoints, c.Endpoints = c.Endpoints, m })
	path := endpointsPath + "/" + b.endpoint(t)
	m.change = func(e *webhook.Endpoint) { e.Auth = webhook.Auth{Kind: webhook.AuthBearer, Token: "canary"} }
	b.refused(t, "admin", "PATCH", path, `{"url":"https://attacker.example"}`, "auth", notFollowing)
	require.Equal(t, "https://example.com/hook", b.endpoints[0].URL)

	path = b.withCredentials(t)
	m.change = func(e *webhook.Endpoint) { e.URL = "https://elsewhere.example/hook" }
	b.refused(t, "admin", "PATCH", path, `{"url":"https://receiver.example/hook","auth":null,"client_certificate":null}`, "headers", notFollowing)
}
