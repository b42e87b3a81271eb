package console

import (
	"net/http"
	"net/url"
	"strings"
)

// The paths of the console and of the portal.
const (
	Root       = "/console"
	PortalRoot = "/portal"
)

// The paths outside of Root that a browser asks for.
const (
	start   = "/"
	favicon = "/favicon.ico"
)

// Owns reports whether a request is the console's or the portal's: below their roots, or what a browser asks for that was given the address of the server.
func Owns(r *http.Request) bool {
	if r.URL.Path == start || r.URL.Path == favicon {
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	}
	return isBelow(r.URL.Path, Root) || isBelow(r.URL.Path, PortalRoot)
}

// isBelow reports whether a path is that of a page below a root.
func isBelow(path, root string) bool {
	rest, found := strings.CutPrefix(path, root)
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
	path, ok := isLocal(to, Root)
	if !ok || strings.HasPrefix(path, Root+"/login") || strings.HasPrefix(path, Root+"/links/") {
		return Root + "/"
	}
	return to
}

// isLocal reports whether a text is the path of a page below a root, with or without a query, and leads to no other host. path is decoded, without the query.
func isLocal(to, root string) (path string, ok bool) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !isBelow(u.Path, root) || strings.ContainsAny(to, "\\\r\n\t") ||
		strings.Contains(u.Path, "//") {
		return "", false
	}
	return u.Path, true
}
