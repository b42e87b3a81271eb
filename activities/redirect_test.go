package activities

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedirectNamesTheTarget(t *testing.T) {
	t.Parallel()
	const endpoint = "https://hooks.example:8443/secret-token/in?key=canary"
	for location, want := range map[string]string{
		"https://elsewhere.example/echo?user_content_key=canary#canary": "redirect: https://elsewhere.example/echo",
		"http://user:canary@elsewhere.example":                          "redirect: http://elsewhere.example",
		"//elsewhere.example/a%2Fb":                                     "redirect: https://elsewhere.example/a%2Fb",
		"/login?next=canary":                                            "redirect: https://hooks.example:8443/login",
		"login":                                                         "redirect: https://hooks.example:8443/…",
		"?canary":                                                       "redirect: https://hooks.example:8443/…",
		"https://bücher.example:8443/konto":                             "redirect: https://xn--bcher-kva.example:8443/konto",
		"https://a_b.example/":                                          "redirect: https://a_b.example/",
		"https://[2001:db8::1]:8443/x":                                  "redirect: https://[2001:db8::1]:8443/x",
		"https://elsewhere.example/ä":                                   "redirect: https://elsewhere.example/%C3%A4",
		"https://elsewhere.example/" + strings.Repeat("a", 300):         "redirect: https://elsewhere.example/" + strings.Repeat("a", 199) + "…",
		"": "", "mailto:canary@example.com": "", "https://[": "", "https://\xff.example/": "",
	} {
		require.Equal(t, want, redirect(endpoint, 302, map[string][]string{"location": {location}}), location)
	}
	require.Empty(t, redirect(endpoint, 302, nil))
	require.Empty(t, redirect(endpoint, 200, map[string][]string{"Location": {"https://elsewhere.example/"}}))
}
