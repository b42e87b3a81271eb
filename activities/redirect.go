package activities

import (
	"cmp"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/everpost/everpost/internal/webhook"
)

// maxRedirectPath bounds the path that redirect names, in bytes.
const maxRedirectPath = 200

// redirect says where a redirect leads, as an attempt's error: scheme, host and path, never a query, a fragment or credentials. It
// is "" for any other answer and for a Location that cannot be parsed.
func redirect(endpoint string, status int, header map[string][]string) string {
	if status < 300 || status > 399 {
		return ""
	}
	location := ""
	for name, values := range header {
		if strings.EqualFold(name, "Location") && len(values) > 0 {
			location = values[0]
		}
	}
	to, err := url.Parse(location)
	if err != nil || location == "" || to.Opaque != "" {
		return ""
	}
	from, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	path := to.EscapedPath()
	if to.Host == "" && !strings.HasPrefix(path, "/") {
		path = "/…" // relative to the endpoint's own path, which may hold a credential
	}
	if len(path) > maxRedirectPath {
		path = path[:maxRedirectPath] + "…"
	}
	host, err := idna.Punycode.ToASCII(cmp.Or(to.Host, from.Host))
	if err != nil || !utf8.ValidString(to.Host) || strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return webhook.RedirectError + cmp.Or(to.Scheme, from.Scheme) + "://" + host + path
}
