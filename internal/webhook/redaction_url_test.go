package webhook_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// The parts of an endpoint's URL that are redacted in a response, and those that are not.
func TestEchoesOfURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, said, want string }{
		{"https://h/hook?token=s3cr3t-1", "https://h/hook/?token=s3cr3t-1", "https://h/hook/?[redacted]"},
		{"https://h/hook?token=s3cr3t-1", "https://h/hook/?x=1&token=s3cr3t-1", "https://h/hook/?x=1&[redacted]"},
		{"https://h/hook?token=s3cr3t-1", `{"token":"s3cr3t-1"}`, `{"token":"[redacted]"}`},
		{"https://h/hook?v=2&token=s3cr3t-1", "v=2, s3cr3t-1", "v=2, [redacted]"},
		{"https://h/hook?token=s3cr3t", "?token=s3cr3t, s3cr3t", "?[redacted], s3cr3t"}, // too short to be redacted without its name
		{"https://h/hook?v=2&k=1", "https://h/hook/?v=2, v=2 k=1", "https://h/hook/?v=2, v=2 k=1"},
		{"https://h/hook?s3cr3t-word", "you asked for s3cr3t-word", "you asked for [redacted]"},
		{"https://h/hook?t=a%2Fb%20c+d%26e", "a%2Fb%20c+d%26e a%2fb%20c+d%26e a/b c d&e", "[redacted] [redacted] [redacted]"},
		{"https://h/hook?t=a%2Fb%20c+d%26e", "a%2Fb+c+d%26e a%2Fb%20c%20d&e", "[redacted] [redacted]"},
		{"https://h/hook?t=a%2Fb%20c+d%26e", `"a\/b c d\u0026e"`, `"a\/b c d\u0026e"`},
		{"https://h/hook?t=%zz%2", "t=%zz%2 and %zz%2", "t=%zz%2 and %zz%2"},
		{"https://h/hook?t=%zz%2%zz%2", "%zz%2%zz%2", "[redacted]"},
		{"https://h/hooks/0123456789abcde/in", "https://h/hooks/0123456789abcde/in", "https://h/hooks/0123456789abcde/in"},
		{"https://h/hooks/0123456789abcdef/in", "https://h/hooks/0123456789abcdef/in/", "https://h/hooks/[redacted]/in/"},
		{"https://h/hooks/0123%2F56789abcdef", "0123%2F56789abcdef 0123%2f56789abcdef 0123/56789abcdef", "[redacted] [redacted] [redacted]"},
		{"https://h/hooks/%61%61%61%61%61%61", "%61%61%61%61%61%61", "%61%61%61%61%61%61"}, // six bytes
		{"https://a-host-with-a-long-name.example/hooks", "hooks at a-host-with-a-long-name.example", "hooks at a-host-with-a-long-name.example"},
		{"https://h/hooks", "hooks, https://h/hooks/", "hooks, https://h/hooks/"},
		{"https://h", "https://h/", "https://h/"},
		{"https://h/%zz?token=s3cr3t-1", "s3cr3t-1", "s3cr3t-1"}, // an invalid URL: no request is sent
	} {
		require.Equal(t, c.want, string(webhook.EchoesOfURL(c.url).RedactText([]byte(c.said), false)), c.url)
	}
	require.Empty(t, webhook.EchoesOfURL("https://h/hooks?v=2"))
	both := webhook.EchoesOfHeader([2]string{"X-A", "12345678"}).And(webhook.EchoesOfURL("https://h/?a=1234567890"))
	require.Equal(t, "[redacted] [redacted]", string(both.RedactText([]byte("1234567890 12345678"), false)), "the longer one first")
}

// Every query value and every token in the path is redacted, as it is written in the URL and
// without its escapes.
func TestEchoesOfAnyURL(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringOfN(rapid.RuneFrom([]rune("aZ9-_.~ /+%&=?<é\"")), 16, 30, -1).Draw(t, "secret")
		u := url.URL{Scheme: "https", Host: "h", Path: "/hook", RawQuery: "v=2&token=" + url.QueryEscape(secret)}
		if rapid.Bool().Draw(t, "in the path") {
			u.Path, u.RawPath, u.RawQuery = "/hook/"+secret, "/hook/"+url.PathEscape(secret), ""
		}
		for _, text := range []string{u.String(), secret, url.QueryEscape(secret), strings.ToLower(u.String())} {
			said := string(webhook.EchoesOfURL(u.String()).RedactText([]byte("<<"+text+">>"), false))
			if text == strings.ToLower(u.String()) && strings.ToLower(secret) != secret {
				continue // another secret
			}
			if !strings.Contains(said, webhook.Redacted) || strings.Contains(said, secret) {
				t.Fatalf("%q of %q is %q", text, u.String(), said)
			}
		}
	})
}
