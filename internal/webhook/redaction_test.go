package webhook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

func TestEchoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		said, want  string
	}{
		{"Authorization", "Bearer abcd", "Bearer abcd|abcd|Bearer|abc", "[redacted]|[redacted]|Bearer|abc"},
		{"authorization", "Bearer abc", "Bearer abc|abc", "[redacted]|abc"},
		{"Authorization", "opaque", "it is opaque.", "it is [redacted]."},
		{"Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==, Aladdin, open sesame", "[redacted], Aladdin, [redacted]"},
		{"Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin:open sesame", "[redacted]"},
		{"Authorization", "basic %%%", "basic %%%", "[redacted]"},
		{"X-Api-Key", "12345678", `{"key":"12345678"}`, `{"key":"[redacted]"}`},
		{"X-Api-Key", "1234567", `{"key":"1234567"}`, `{"key":"1234567"}`},
		{"X-Api-Key", " \t12345678 ", "<12345678>", "<[redacted]>"},
		{"X-Api-Key", `a"b<c>/d`, `a"b<c>/d a\"b<c>/d a\"b\u003cc\u003e/d a\"b<c>\/d`, "[redacted] [redacted] [redacted] [redacted]"},
		{"Accept", "application/json", "application/json", "application/json"},
		{"X-Own", "mine", "mine", "mine"},
	} {
		echoes := webhook.EchoesOfHeader([2]string{c.name, c.value})
		require.Equal(t, c.want, string(echoes.RedactText([]byte(c.said), false)), c.value)
		header := map[string][]string{"A": {c.said, "b"}, "C": nil}
		echoes.RedactHeader(header)
		require.Equal(t, map[string][]string{"A": {c.want, "b"}, "C": nil}, header)
	}
	two := webhook.EchoesOfHeader([2]string{"X-A", "12345678"}, [2]string{"X-B", "1234567890"})
	require.Equal(t, "[redacted] [redacted]", string(two.RedactText([]byte("1234567890 12345678"), false)), "the longer one first")
}

// At whatever byte a response is truncated, at most a few bytes of a secret remain.
func TestEchoesAtTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9+/"=]{8,60}`).Draw(t, "secret")
		before := rapid.StringMatching(`[ .,;]{0,40}`).Draw(t, "before")
		whole := before + secret
		cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		echoes := webhook.EchoesOfHeader([2]string{"X-Api-Key", secret})
		got := string(echoes.RedactText([]byte(whole[:cut]), true))
		rest, ok := strings.CutPrefix(got, before[:min(cut, len(before))])
		require.True(t, ok)
		require.LessOrEqual(t, len(strings.TrimSuffix(rest, webhook.Redacted)), 3, got)
	})
}
