package console

import (
	"net/url"
	"strings"
)

// Root is the path of the console.
const Root = "/console"

// Owns reports whether a path is the console's.
func Owns(path string) bool {
	rest, found := strings.CutPrefix(path, Root)
	return found && (rest == "" || rest[0] == '/')
}

// pagePath is the path of a page about a tenant.
func pagePath(tenant string, parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return Root + "/t/" + url.PathEscape(tenant) + "/" + strings.Join(escaped, "/")
}

// localPath returns a path of the console to go to after a log-in; the start page for anything else.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !Owns(u.Path) || strings.ContainsAny(to, "\\\r\n\t") ||
		strings.HasPrefix(u.Path, Root+"/login") || strings.HasPrefix(u.Path, Root+"/links/") || strings.Contains(u.Path, "//") {
		return Root + "/"
	}
	return to
}
