// Package hosts keeps web pages out of listeners that ask nobody who they are.
//
// A page that a browser on this network shows can have its own name resolve to such a listener (DNS
// rebinding): to the browser both have one origin then, and the page reads what it answers. But the
// request still has the page's name in its Host field. So only names that an operator has listed are
// answered. Addresses and localhost always are: nobody can have them resolve elsewhere.
package hosts

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Allowed are the names that a listener answers to, beside addresses and localhost.
type Allowed struct {
	// Any lets every name through: for a listener behind something that checks names itself.
	Any bool

	// Names are host names in lower case, without a port. "*.example.com" stands for every name below
	// example.com.
	Names []string
}

// Admits reports whether a request with this Host field is answered. An empty one is: only programs
// send it, such as the health checks of load balancers over HTTP/1.0.
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

// Check answers 403 to requests for names that are not allowed, and passes all others on. The answer
// names the setting that allows a name.
func Check(next http.Handler, allowed Allowed, setting string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed.Admits(r.Host) {
			refuse(w, "This listener answers to addresses, localhost and the names in "+setting+".")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SameSite answers 403 to requests that a browser makes for a page of another site, and passes all
// others on: what is behind it costs something even when the page cannot read the answer. Browsers
// say where a request comes from in Sec-Fetch-Site, and older ones at least in Origin; programs say
// neither.
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
	case "same-origin", "none": // none: typed, or from a bookmark
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host) // "null" has no host
	}
	return true // cross-site; same-site, which another port of this machine is too; and what is not known
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, text, http.StatusForbidden)
}
