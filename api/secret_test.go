package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// A key pair that the Standard Webhooks libraries publish.
const (
	knownPrivateKey = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	knownPublicKey  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

const noSecret = "must be base64 after its prefix, which it is not; for hexadecimal digits or plain text give secret_encoding: \"hex\" or \"text\""

// Each scheme with each kind of secret: a given one, a generated one and one that does not fit.
func TestSchemes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		fields string
		secret string // a pattern
		public any
	}{
		{``, `^whsec_[A-Za-z0-9+/]{43}=$`, nil},
		{`,"signature":null`, `^whsec_[A-Za-z0-9+/]{43}=$`, nil},
		{`,"signature":"hex"`, `^whsec_[A-Za-z0-9+/]{43}=$`, nil},
		{`,"signature":"v1a","secret":"` + knownPrivateKey + `"`, `^whsk_6Xb/dCc`, knownPublicKey},
		{`,"secret":"` + knownPrivateKey + `","signature":"v1a"`, `^whsk_6Xb/dCc`, knownPublicKey},
		{`,"signature":"hex","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`, `^whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw$`, nil},
	} {
		a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com"`+c.fields+`}`)
		require.Regexp(t, c.secret, a.json["secret"], c.fields)
		require.Equal(t, c.public, a.json["public_key"], c.fields)
	}
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","signature":"v1a","secret":null}`)
	require.Regexp(t, `^whsk_[A-Za-z0-9+/]{86}==$`, a.json["secret"])
	require.Regexp(t, `^whpk_[A-Za-z0-9+/]{43}=$`, a.json["public_key"])
	shown := b.ok(t, http.StatusOK, "admin", "GET", endpointsPath+"/"+a.json["id"].(string), "")
	require.Equal(t, a.json["public_key"], shown.json["public_key"])
	require.NotContains(t, shown.text, "whsk_")

	for fields, begin := range map[string][2]string{
		`"signature":"v1a","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`: {"whsk_", "v1a"},
		`"signature":"hex","secret":"` + knownPrivateKey + `"`:                {"whsec_", "hex"},
		`"secret":"` + knownPrivateKey + `"`:                                  {"whsec_", "v1"},
	} {
		b.refused(t, "admin", "POST", endpointsPath, `{"url":"https://example.com",`+fields+`}`,
			"secret", "must begin with "+begin[0]+`, because the endpoint's signature is "`+begin[1]+`"`)
	}
}

func TestPatchChangesTheScheme(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := endpointsPath + "/" + b.endpoint(t)
	secret := func() any { return b.ok(t, http.StatusOK, "admin", "GET", path+"/secret", "").json["secret"] }
	first := secret()
	a := b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"signature":"hex"}`)
	require.Equal(t, "hex", a.json["signature"])
	require.Equal(t, first, secret(), "the same kind of secret")
	a = b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"signature":"v1a"}`)
	require.Equal(t, knownPublicKey, a.json["public_key"])
	require.Equal(t, knownPrivateKey, secret())
	require.NotContains(t, a.text, "whsk_")
	a = b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"signature":null}`)
	require.Nil(t, a.json["public_key"])
	require.True(t, strings.HasPrefix(secret().(string), "whsec_"))
}

func TestRotateSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t)
	path := endpointsPath + "/" + id + "/rotate-secret"
	for _, c := range []struct {
		body  string
		until any
	}{
		{``, testNow().Add(24 * time.Hour).Format("2006-01-02T15:04:05.000000Z")},
		{`{}`, testNow().Add(24 * time.Hour).Format("2006-01-02T15:04:05.000000Z")},
		{`{"grace":null,"secret":null}`, testNow().Add(24 * time.Hour).Format("2006-01-02T15:04:05.000000Z")},
		{`{"grace":"168h"}`, testNow().Add(168 * time.Hour).Format("2006-01-02T15:04:05.000000Z")},
		{`{"grace":"0s"}`, nil},
		{`{"grace":"1.5s","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`, "2026-01-31T09:30:01.623456Z"},
	} {
		a := b.ok(t, http.StatusOK, "admin", "POST", path, c.body)
		require.Equal(t, c.until, a.json["old_secrets_until"], c.body)
		require.Regexp(t, "^whsec_", a.json["secret"])
		require.Nil(t, a.json["public_key"])
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		require.Equal(t, a.json["secret"], b.ok(t, http.StatusOK, "admin", "GET", endpointsPath+"/"+id+"/secret", "").json["secret"])
	}
	require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b.secrets[b.endpoints[0].ID])
	b.refused(t, "admin", "POST", path, `{"grace":"169h","secret":"whsec_x","more":1}`,
		"grace", `must be a duration from "0s" to "168h"`, "more", "is not a known field", "secret", noSecret)
	b.refused(t, "admin", "POST", path, `{"grace":"-1s"}`, "grace", `must be a duration from "0s" to "168h"`)
	b.refused(t, "admin", "POST", path, `{"secret":"`+knownPrivateKey+`"}`, "secret", `must begin with whsec_, because the endpoint's signature is "v1"`)
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, "")
	b.ok(t, http.StatusNotFound, "foreign", "POST", strings.Replace(path, "acme", "other", 1), "")
	b.ok(t, http.StatusNotFound, "admin", "POST", endpointsPath+"/"+webhook.NewEndpointID().String()+"/rotate-secret", "")

	b.ok(t, http.StatusOK, "admin", "PATCH", endpointsPath+"/"+id, `{"signature":"v1a"}`)
	a := b.ok(t, http.StatusOK, "admin", "POST", path, `{"secret":"`+knownPrivateKey+`"}`)
	require.Equal(t, knownPublicKey, a.json["public_key"])
}

// A caller's own secret is read in the forms that exist; the answer says how, and warns of what may be meant otherwise.
func TestSuppliedSecretsSayHowTheyWereRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t)
	for _, c := range []struct {
		fields, secret, read, warning string
	}{
		{`"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "base64, 24 bytes", "text"},
		{`"secret":"\ufeffwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n","secret_encoding":"base64"`,
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "base64, 24 bytes", ""},
		{`"secret_encoding":"hex","secret":"` + strings.Repeat("00ff", 12) + `"`, "whsec_AP8A/wD/AP8A/wD/AP8A/wD/AP8A/wD/", "hex, 24 bytes", ""},
		{`"secret":"whsec_` + strings.Repeat("00ff", 12) + `"`, "whsec_" + strings.Repeat("00ff", 12), "base64, 36 bytes", "hex"},
		{`"secret":"twenty-four bytes or so.","secret_encoding":"text"`, "whsec_dHdlbnR5LWZvdXIgYnl0ZXMgb3Igc28u", "text, 24 bytes", ""},
		{`"secret":null,"secret_encoding":null`, "", "", ""},
		{``, "", "", ""},
	} {
		body := "{" + c.fields + "}"
		create := strings.Replace(strings.Replace(body, "{", `{"url":"https://example.com",`, 1), ",}", "}", 1)
		made := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, create)
		rotated := b.ok(t, http.StatusOK, "admin", "POST", endpointsPath+"/"+id+"/rotate-secret", body)
		for _, a := range []answer{made, rotated} {
			if c.read == "" {
				require.NotContains(t, a.json, "secret_read")
				require.NotContains(t, a.json, "secret_warning")
				continue
			}
			require.Equal(t, c.secret, a.json["secret"], body)
			require.Equal(t, c.read, a.json["secret_read"], body)
			if c.warning == "" {
				require.NotContains(t, a.json, "secret_warning", body)
			} else {
				require.Contains(t, a.json["secret_warning"], `secret_encoding "`+c.warning+`"`)
			}
		}
	}
	for fields, want := range map[string][]string{
		`"secret_encoding":"hex"`:                              {"secret_encoding", "has no effect without a secret"},
		`"secret":"whsec_\u200b"`:                              {"secret", "must hold 24 to 64 bytes"},
		`"secret":" \n"`:                                       {"secret", "must not be empty"},
		`"secret":"whsec_MfKQ9r8GKYqrTwjU\nPD8ILPZIo2LaLaSw"`:  {"secret", "has a line break inside"},
		`"secret":"whsec_MfKQ9r8GKYqr\u200bTwjUPD8ILPZIo2LaL"`: {"secret", "(U+200B) inside"},
		`"secret":"x","secret_encoding":"utf-8"`:               {"secret_encoding", `must be "base64", "hex" or "text"`},
	} {
		a := b.ok(t, http.StatusBadRequest, "admin", "POST", endpointsPath+"/"+id+"/rotate-secret", "{"+fields+"}")
		require.Equal(t, want[0], fieldsOf(t, a)[0], fields)
		require.Contains(t, a.text, strings.ReplaceAll(want[1], `"`, `\"`), fields)
		require.NotContains(t, a.text, "MfKQ")
	}
}
