package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	basicAuth  = `{"type":"basic","username":"shop","password":"canary p\u00e4ss"}`
	bearerAuth = `{"type":"bearer","token":"canary.Token-1"}`
	clientAuth = `{"type":"oauth2_client_credentials","token_url":"https://tokens.example/t","client_id":"shop","client_secret":"canary secret",` +
		`"scopes":["hooks.write","hooks:read"],"audience":"https://receiver.example/"}`
)

// certificate returns a self-signed client certificate and its SHA-256 in hex.
func certificate(t *testing.T, from, until time.Time) (c webhook.ClientCertificate, sum string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop", Organization: []string{"Acme"}}, NotBefore: from, NotAfter: until,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	digest := sha256.Sum256(der)
	return webhook.ClientCertificate{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}, hex.EncodeToString(digest[:])
}

// weak returns a certificate for an RSA key of 1,024 bits, with another certificate's key.
func weak(t *testing.T, c webhook.ClientCertificate) webhook.ClientCertificate {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	c.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return c
}

func quoted(t *testing.T, c webhook.ClientCertificate) string {
	t.Helper()
	text, err := json.Marshal(map[string]string{"certificate": c.Certificate, "key": c.Key})
	require.NoError(t, err)
	return string(text)
}

// Credentials are stored unchanged, and no view of an endpoint contains their secret parts.
func TestEndpointAuth(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		stored webhook.Auth
		shown  string
	}{
		basicAuth:  {webhook.Auth{Kind: webhook.AuthBasic, Username: "shop", Password: "canary päss"}, `{"type":"basic","username":"shop"}`},
		bearerAuth: {webhook.Auth{Kind: webhook.AuthBearer, Token: "canary.Token-1"}, `{"type":"bearer"}`},
		clientAuth: {webhook.Auth{
			Kind: webhook.AuthClientCredentials, TokenURL: "https://tokens.example/t", ClientID: "shop", ClientSecret: "canary secret",
			Scopes: []string{"hooks.write", "hooks:read"}, Audience: "https://receiver.example/",
		}, `{"type":"oauth2_client_credentials","token_url":"https://tokens.example/t","client_id":"shop","scopes":["hooks.write","hooks:read"],` +
			`"audience":"https://receiver.example/"}`},
		`{"type":"basic","username":"key","password":""}`: {webhook.Auth{Kind: webhook.AuthBasic, Username: "key"}, `{"type":"basic","username":"key"}`},
		strings.Replace(clientAuth, `"scopes":["hooks.write","hooks:read"],"audience":"https://receiver.example/"`, `"scopes":null,"audience":null`, 1): {
			webhook.Auth{Kind: webhook.AuthClientCredentials, TokenURL: "https://tokens.example/t", ClientID: "shop", ClientSecret: "canary secret"},
			`{"type":"oauth2_client_credentials","token_url":"https://tokens.example/t","client_id":"shop"}`,
		},
	} {
		b := setup(t)
		created := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","auth":`+text+`}`)
		path := endpointsPath + "/" + created.json["id"].(string)
		require.Equal(t, c.stored, b.endpoints[0].Auth)
		for _, a := range []answer{
			created, b.ok(t, http.StatusOK, "admin", "GET", path, ""), b.ok(t, http.StatusOK, "admin", "GET", endpointsPath, ""),
			b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"description":"x"}`),
		} {
			require.Contains(t, a.text, `"auth":`+c.shown+`,`)
			require.NotContains(t, a.text, "canary")
		}
		require.Equal(t, c.stored, b.endpoints[0].Auth, "absent is unchanged")
		b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"auth":`+bearerAuth+`}`)
		require.Equal(t, webhook.Auth{Kind: webhook.AuthBearer, Token: "canary.Token-1"}, b.endpoints[0].Auth, "replaced as a whole")
		require.Contains(t, b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"auth":null}`).text, `"auth":null`)
		require.Equal(t, webhook.Auth{}, b.endpoints[0].Auth)
	}
}

func TestClientCertificate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := testNow()
	until := now.Add(48 * time.Hour).UTC().Truncate(time.Second)
	c, sum := certificate(t, now.Add(-time.Hour), until)
	created := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","client_certificate":`+quoted(t, c)+`}`)
	path := endpointsPath + "/" + created.json["id"].(string)
	require.Equal(t, c, b.endpoints[0].Certificate)
	for _, a := range []answer{created, b.ok(t, http.StatusOK, "admin", "GET", path, "")} {
		require.Equal(t, map[string]any{
			"subject": "CN=shop,O=Acme", "sha256": sum, "expires_at": until.Format("2006-01-02T15:04:05.000000Z"), "max_tls": nil,
		}, a.json["client_certificate"])
		require.NotContains(t, a.text, "PRIVATE KEY")
		require.NotContains(t, a.text, "BEGIN")
	}
	// A view parses the certificate, not the key: a list has hundreds of them.
	b.endpoints[0].Certificate.Key = "canary"
	for _, list := range []string{path, endpointsPath} {
		require.Contains(t, b.ok(t, http.StatusOK, "admin", "GET", list, "").text, `"sha256":"`+sum+`"`)
	}
	require.Contains(t, b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"client_certificate":null}`).text, `"client_certificate":null`)
	require.True(t, b.endpoints[0].Certificate.IsZero())

	other, _ := certificate(t, now.Add(-time.Hour), until)
	expired, _ := certificate(t, now.Add(-time.Hour), now.Add(-time.Second))
	tomorrow, _ := certificate(t, now.Add(time.Hour), until)
	const notKey, notCertificate = "is not the unencrypted private key of the certificate, in PEM", "is not a certificate in PEM"
	for name, refusal := range map[string]struct {
		body string
		want []string
	}{
		"expired":       {quoted(t, expired), []string{"client_certificate.certificate", "has expired"}},
		"not yet":       {quoted(t, tomorrow), []string{"client_certificate.certificate", "is not valid yet"}},
		"another's key": {quoted(t, webhook.ClientCertificate{Certificate: c.Certificate, Key: other.Key}), []string{"client_certificate.key", notKey}},
		"key twice":     {quoted(t, webhook.ClientCertificate{Certificate: c.Key, Key: c.Key}), []string{"client_certificate.certificate", notCertificate}},
		"certificate":   {quoted(t, webhook.ClientCertificate{Certificate: c.Certificate, Key: c.Certificate}), []string{"client_certificate.key", notKey}},
		"empty":         {`{"certificate":"","key":""}`, []string{"client_certificate.certificate", notCertificate}},
		"a small key":   {quoted(t, weak(t, c)), []string{"client_certificate.certificate", webhook.ErrKeyKind.Error()}},
		"a long chain": {
			quoted(t, webhook.ClientCertificate{Certificate: strings.Repeat(c.Certificate, 6), Key: c.Key}),
			[]string{"client_certificate.certificate", "has more than 5 certificates"},
		},
		"no key":      {`{"certificate":"canary"}`, []string{"client_certificate.key", "is required"}},
		"no such TLS": {`{"certificate":"","key":"","max_tls":"1.1"}`, []string{"client_certificate.max_tls", `must be "1.2" or null`}},
		"TLS alone": {
			`{"max_tls":"1.2"}`, []string{"client_certificate.certificate", "is required", "client_certificate.key", "is required"},
		},
		"nothing":       {`{}`, []string{"client_certificate.certificate", "is required", "client_certificate.key", "is required"}},
		"another field": {`{"certificate":"","key":"","password":"canary"}`, []string{"client_certificate.password", "is not a known field"}},
		"a text":        {`"canary"`, []string{"client_certificate", "must be an object"}},
		"a long text": {`{"certificate":"` + strings.Repeat("x", 16385) + `","key":7}`, []string{
			"client_certificate.certificate", "must not be longer than 16384 bytes", "client_certificate.key", "must be a string",
		}},
	} {
		b.refused(t, "admin", "PATCH", path, `{"client_certificate":`+refusal.body+`}`, refusal.want...)
		require.True(t, b.endpoints[0].Certificate.IsZero(), name)
	}
}

func TestEndpointAuthRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var scopes []string
	for i := range webhook.MaxTokenScopes + 1 {
		scopes = append(scopes, `"s`+strconv.Itoa(i)+`"`)
	}
	const ascii, graphic, control = "must be printable ASCII", "must be printable ASCII without spaces", "must not contain control characters"
	for text, want := range map[string][]string{
		`"Bearer canary"`:                      {"auth", "must be an object"},
		`{}`:                                   {"auth.type", "is required"},
		`{"token":"canary"}`:                   {"auth.type", "is required"},
		`{"type":null}`:                        {"auth.type", "must be a string"},
		`{"type":"digest","username":"a"}`:     {"auth.type", `must be "basic", "bearer" or "oauth2_client_credentials"`},
		`{"type":""}`:                          {"auth.type", `must be "basic", "bearer" or "oauth2_client_credentials"`},
		`{"type":"basic"}`:                     {"auth.username", "is required", "auth.password", "is required"},
		`{"type":"bearer"}`:                    {"auth.token", "is required"},
		`{"type":"oauth2_client_credentials"}`: {"auth.token_url", "is required", "auth.client_id", "is required", "auth.client_secret", "is required"},
		`{"token":"canary","type":"basic","username":"a","password":"b"}`: {"auth.token", `does not belong to the type "basic"`},
		`{"type":"bearer","token":"a","scopes":null}`:                     {"auth.scopes", `does not belong to the type "bearer"`},
		`{"type":"bearer","token":"a","realm":"b"}`:                       {"auth.realm", "is not a known field"},
		`{"type":"bearer","token":"a","token":"b"}`:                       {"auth.token", "is given more than once"},
		`{"type":"basic","username":"a:b","password":"p"}`:                {"auth.username", "must not contain a colon"},
		`{"type":"basic","username":"","password":"p"}`:                   {"auth.username", "must not be empty"},
		`{"type":"basic","username":"a\r\nX: y","password":"p\u0085"}`: {
			"auth.username", control, "auth.username", "must not contain a colon", "auth.password", control,
		},
		`{"type":"bearer","token":"a b"}`:                                 {"auth.token", graphic},
		`{"type":"bearer","token":"ä"}`:                                   {"auth.token", graphic},
		`{"type":"bearer","token":""}`:                                    {"auth.token", "must not be empty"},
		`{"type":"bearer","token":null}`:                                  {"auth.token", "must be a string"},
		`{"type":"bearer","token":"` + strings.Repeat("x", 4097) + `"}`:   {"auth.token", "must not be longer than 4096 bytes"},
		strings.Replace(clientAuth, "https://tokens", "http://tokens", 1): {"auth.token_url", "only https is allowed"},
		strings.Replace(clientAuth, "https://tokens", "https://10.0.0.1:22/", 1): {
			"auth.token_url", "the address is not public", "auth.token_url", "port 22 is not allowed",
		},
		strings.Replace(clientAuth, "canary secret", "s\\n", 1):                                 {"auth.client_secret", ascii},
		strings.Replace(clientAuth, `"shop"`, `"ä"`, 1):                                         {"auth.client_id", ascii},
		strings.Replace(clientAuth, "hooks:read", "hooks.write", 1):                             {"auth.scopes[1]", "is listed more than once"},
		strings.Replace(clientAuth, "hooks:read", "a b", 1):                                     {"auth.scopes[1]", graphic + ", quotes and backslashes"},
		strings.Replace(clientAuth, "hooks:read", `a\"`, 1):                                     {"auth.scopes[1]", graphic + ", quotes and backslashes"},
		strings.Replace(clientAuth, `"hooks.write","hooks:read"`, strings.Join(scopes, ","), 1): {"auth.scopes", "has more than 20 entries"},
		strings.Replace(clientAuth, `"hooks.write","hooks:read"`, strings.Join(scopes, ",")+strings.Repeat(`,"s0"`, 50_000)+`,7`, 1): {
			"auth.scopes", "has more than 20 entries", // the rest is not compared, which would take quadratic time
		},
		strings.Replace(clientAuth, `"https://receiver.example/"`, `""`, 1): {"auth.audience", "must not be empty"},
	} {
		b.refused(t, "admin", "POST", endpointsPath, `{"url":"https://example.com","auth":`+text+`}`, want...)
	}
	require.Empty(t, b.endpoints)
}

// Combinations of fields: an endpoint's own header and auth, a certificate and a URL without TLS. In
// a PATCH, one of the two may be stored already.
func TestAuthAndTheRestOfTheEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.URLs = anyURL{} })
	both := []string{"headers.AUTHORIZATION", "cannot be set together with auth, which sets this header"}
	own := `"headers":{"AUTHORIZATION":"Bearer canary"}`
	b.refused(t, "admin", "POST", endpointsPath, `{"url":"https://example.com",`+own+`,"auth":`+basicAuth+`}`, both...)
	create := func(fields string) string {
		return endpointsPath + "/" + b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com",`+fields+`}`).json["id"].(string)
	}
	b.refused(t, "admin", "PATCH", create(own), `{"auth":`+bearerAuth+`}`, both...)
	withAuth := create(`"auth":` + clientAuth)
	b.refused(t, "admin", "PATCH", withAuth, `{`+own+`}`, both...)
	b.ok(t, http.StatusOK, "admin", "PATCH", withAuth, `{`+own+`,"auth":null}`)
	b.ok(t, http.StatusOK, "admin", "PATCH", withAuth, `{"headers":null,"auth":`+basicAuth+`}`)

	now := testNow()
	c, _ := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	noTLS := []string{"client_certificate", "needs an https URL"}
	b.refused(t, "admin", "POST", endpointsPath, `{"url":"HTTP://example.com","client_certificate":`+quoted(t, c)+`}`, noTLS...)
	secured := create(`"client_certificate":` + quoted(t, c) + `,"auth":` + bearerAuth)
	b.refused(t, "admin", "PATCH", secured, `{"url":"http://example.com","auth":null,"client_certificate":`+quoted(t, c)+`}`, noTLS...)
	b.ok(t, http.StatusOK, "admin", "PATCH", secured, `{"url":"http://example.com","auth":null,"client_certificate":null}`)
	b.refused(t, "admin", "PATCH", secured, `{"client_certificate":`+quoted(t, c)+`}`, noTLS...)
}

// anyURL accepts all URLs.
type anyURL struct{}

func (anyURL) CheckURL(string) []string { return nil }

// max_tls alone changes nothing else, and does not let the certificate follow the URL.
func TestMaxTLS(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, _ := certificate(t, testNow().Add(-time.Hour), testNow().Add(time.Hour))
	pair := quoted(t, c)
	twelve := strings.Replace(pair, "{", `{"max_tls":"1.2",`, 1)
	created := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","client_certificate":`+twelve+`}`)
	path := endpointsPath + "/" + created.json["id"].(string)
	for _, step := range []struct {
		body string
		want webhook.MaxTLS
	}{
		{`{"max_tls":null}`, webhook.MaxTLSAny}, {`{"max_tls":"1.2"}`, webhook.MaxTLS12}, {pair, webhook.MaxTLSAny}, {twelve, webhook.MaxTLS12},
	} {
		a := b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"client_certificate":`+step.body+`}`)
		require.Equal(t, step.want == webhook.MaxTLS12, a.json["client_certificate"].(map[string]any)["max_tls"] == "1.2")
		require.Equal(t, webhook.ClientCertificate{Certificate: c.Certificate, Key: c.Key, MaxTLS: step.want}, b.endpoints[0].Certificate)
	}
	b.refused(t, "admin", "PATCH", path, `{"client_certificate":{"max_tls":null},"url":"https://a.example"}`,
		"client_certificate.certificate", "is required", "client_certificate.key", "is required")
	b.refused(t, "admin", "POST", endpointsPath, `{"url":"https://example.com","client_certificate":{"max_tls":"1.2"}}`,
		"client_certificate.certificate", "is required", "client_certificate.key", "is required")
}
