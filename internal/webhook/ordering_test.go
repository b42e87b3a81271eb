package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestValidOrderingKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", " a ", "order-17", "Müller & Söhne", "Ελλάδα", strings.Repeat("ü", 128)} {
		require.True(t, webhook.ValidOrderingKey(key), key)
	}
	for _, key := range []string{"", "a\nb", "a\x00", "a\u00a0b", "\xff", strings.Repeat("x", 129)} {
		require.False(t, webhook.ValidOrderingKey(key), "%q", key)
	}
}

// A key in a header is itself, or a display string of RFC 9651, which no key is taken for.
func TestOrderingKeyHeader(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"order-17":      "order-17",
		`50% of "x"`:    `50% of "x"`,
		"Müller":        `%"M%c3%bcller"`,
		" a":            `%" a"`,
		`%"a"`:          `%"%25%22a%22"`,
		"größer 50%":    `%"gr%c3%b6%c3%9fer 50%25"`,
		"Ω":             `%"%ce%a9"`,
		`back\slash "q`: `back\slash "q`,
	} {
		require.Equal(t, want, webhook.OrderingKeyHeader(key))
		h := http.Header{}
		h.Set("k", webhook.OrderingKeyHeader(key))
		require.NoError(t, h.Write(&strings.Builder{}))
	}
}

func TestOrderingNames(t *testing.T) {
	t.Parallel()
	for _, by := range webhook.OrderingBys() {
		parsed, ok := webhook.ParseOrderingBy(by.String())
		require.True(t, ok)
		require.Equal(t, by, parsed)
	}
	_, ok := webhook.ParseOrderingBy("key")
	require.False(t, ok)
}
