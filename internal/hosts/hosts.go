// Package hosts protects listeners without authentication from web pages.
//
// With DNS rebinding, a page in a browser on this network can make its own name resolve to such a
// listener. The browser then considers both the same origin and lets the page read the responses.
// Such a request has the page's name in its Host field, so a listener answers only names that the
// operator has listed. It always answers IP addresses and localhost, which need no lookup that an
// attacker could change.
package hosts

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Allowed are the names that a listener answers, in addition to IP addresses and localhost.
type Allowed struct {
	// Any allows every name, for a listener behind a proxy that checks names.
	Any bool

	// Names are host names in lower case, without a port. "*.example.com" matches every name below
	// example.com.
	Names []string
}

// Admits reports whether a request with this Host field is allowed. An empty one is allowed: only
// programs send it, such as HTTP/1.0 health checks of load balancers.
func (a Allowed) Admits(host string) bool {
	if a.Any || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if address, isLiteral := strings.CutPrefix(host, "["); isLiteral {
		host = strings.TrimSuffix(address, "]")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	for _, name := range a.Names {
		if domain, below := strings.CutPrefix(name, "*"); host == name || below && strings.HasSuffix(host, domain) && host != domain {
			return true
		}
	}
	return false
}

// Check responds with 403 to requests for names that are not allowed. The response contains the name
// of the setting that allows a name.
func Check(next http.Handler, allowed Allowed, setting string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed.Admits(r.Host) {
			refuse(w, "This listener answers to addresses, localhost and the names in "+setting+".")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SameSite responds with 403 to a browser's requests from pages of other sites, because such a request
// has effects even if the page cannot read the response. Browsers send the origin of a request in
// Sec-Fetch-Site, older ones in Origin; other clients send neither.
func SameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if crossSite(r) {
			refuse(w, "This is not for pages of other sites: open it by its address.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: entered by the user, or from a bookmark
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host) // the origin "null" has no host
	}
	return true // cross-site; same-site, which includes other ports of this machine; and unknown values
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, text, http.StatusForbidden)
}
