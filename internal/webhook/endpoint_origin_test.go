package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	const one = "https://receiver.example/hook?token=x"
	for other, want := range map[string]bool{
		"https://receiver.example/":             true,
		"HTTPS://Receiver.Example/other":        true,
		"https://receiver.example:443/hook":     true,
		"https://receiver.example:0443/hook":    true,
		"http://receiver.example/hook":          false,
		"https://receiver.example:8443/hook":    false,
		"https://receiver.example:80/hook":      false,
		"https://receiver.example./hook":        false, // a fully qualified name, which sends another Host header
		"https://receiver.example.evil/hook":    false,
		"https://evil.example/receiver.example": false,
		"https://receiver.example@evil.example": false,
		"https://receiver.example:99999/":       false,
		"https:///hook":                         false,
		"":                                      false,
		"%zz":                                   false,
	} {
		require.Equal(t, want, webhook.SameOrigin(one, other), other)
		require.Equal(t, want, webhook.SameOrigin(other, one), other)
	}
	require.True(t, webhook.SameOrigin("http://a.example", "http://a.example:80"))
	require.True(t, webhook.SameOrigin("https://[2606:4700::1111]/", "https://[2606:4700:0:0::1111]:443/"))
	require.False(t, webhook.SameOrigin("%zz", "%zz"), "an invalid URL has no origin")
	require.False(t, webhook.SameOrigin("", ""))
}
