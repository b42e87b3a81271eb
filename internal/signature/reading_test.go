package signature_test

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/signature"
)

// The forms in which secrets exist, and how each is read.
func TestReadSecret(t *testing.T) {
	t.Parallel()
	key := []byte("\xfb\xef\xff 0123456789 a key of25") // 25 bytes: padded; its base64 has + and /
	std, url := base64.StdEncoding.EncodeToString(key), base64.URLEncoding.EncodeToString(key)
	require.Contains(t, std, "=")
	require.NotEqual(t, std, url)
	raw := strings.TrimRight(std, "=")
	canonical := "whsec_" + std
	for text, encoding := range map[string]signature.Encoding{
		canonical: "", "whsec_" + raw: "", "whsec_" + url: "", "whsec_" + strings.TrimRight(url, "="): "",
		std: signature.EncodingBase64, url: signature.EncodingBase64, raw: signature.EncodingBase64,
		hex.EncodeToString(key): signature.EncodingHex, "whsec_" + strings.ToUpper(hex.EncodeToString(key)): signature.EncodingHex,
	} {
		r, err := signature.ReadSecret(text, encoding)
		require.NoError(t, err, text)
		require.Equal(t, canonical, r.Secret.Reveal(), text)
		require.Empty(t, r.Warning, text)
		want := "base64, 25 bytes"
		if encoding == signature.EncodingHex {
			want = "hex, 25 bytes"
		}
		require.Equal(t, want, r.How)
		again, err := signature.ParseSecret(r.Secret.Reveal())
		require.NoError(t, err)
		require.True(t, again.Equal(r.Secret))
	}
	text := "whsec_a phrase of at least 24 bytes"
	r, err := signature.ReadSecret(text, signature.EncodingText)
	require.NoError(t, err)
	require.Equal(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte(text)), r.Secret.Reveal())
	require.Equal(t, "text, 35 bytes", r.How)
}

func TestDoubtfulSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"whsec_" + strings.Repeat("0123abcd", 6):                                  `secret_encoding "hex"`,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":                                  `secret_encoding "text"`,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa+w":                                  "",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAQ==":                              "",
		"whsec_" + strings.TrimRight("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAQ==", "="): `secret_encoding "text"`,
	} {
		r, err := signature.ReadSecret(text, "")
		require.NoError(t, err, text)
		if want == "" {
			require.Empty(t, r.Warning, text)
		} else {
			require.Contains(t, r.Warning, want, text)
		}
		sure, err := signature.ReadSecret(text, signature.EncodingBase64)
		require.NoError(t, err)
		require.Empty(t, sure.Warning)
		require.True(t, sure.Secret.Equal(r.Secret))
	}
}

// A refusal says the form that is expected, and nothing of the secret.
func TestReadSecretRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		encoding signature.Encoding
		want     string
	}{
		{"canary-canary-canary-canary", "", `"base64", "hex" or "text"`},
		{"whsec_canary!canary!canary!canary!", "", "must be base64"},
		{"whsec_AAAA+AAA-AAA_AAAAAAAAAAAAAAAAAAA", "", "must be base64"},
		{"whsec_Y2FuYXJ5", "", "was read as base64, 6 bytes and must hold 24 to 64 bytes"},
		{"canary", signature.EncodingText, "was read as text, 6 bytes and must"},
		{"canarycanarycanary", signature.EncodingHex, "pairs of hexadecimal digits"},
		{strings.Repeat("ca", 65), signature.EncodingHex, "hex, 65 bytes"},
		{"whsk_Y2FuYXJ5", "", "whsk_ followed by the base64"},
		{"whsk_canary!", "", "must be base64"},
		{"whsk_00", signature.EncodingHex, "for whsec_ secrets"},
		{"", signature.EncodingText, "0 bytes"},
	} {
		_, err := signature.ReadSecret(c.text, c.encoding)
		require.ErrorContains(t, err, c.want, c.text)
		require.NotContains(t, err.Error(), "canary")
	}
}
