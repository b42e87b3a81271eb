package webhook

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// SameOrigin reports whether two URLs have the same origin: scheme, host and port (RFC
// 6454, section 4). Case, an explicit default port and the spelling of an IP address make
// no difference. An invalid URL has no origin, so the result is false.
func SameOrigin(one, other string) bool {
	a, ok := originOf(one)
	b, alsoOK := originOf(other)
	return ok && alsoOK && a == b
}

// Origin is the scheme, host and port of a URL, as a URL without a path. It is "" for a URL without a host.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

type origin struct {
	scheme, host string
	port         uint16
}

func originOf(raw string) (origin, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return origin{}, false
	}
	o := origin{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Hostname())}
	if addr, err := netip.ParseAddr(o.host); err == nil {
		o.host = addr.String()
	}
	switch text := u.Port(); {
	case text != "":
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return origin{}, false
		}
		o.port = uint16(port)
	case o.scheme == "https":
		o.port = 443
	case o.scheme == "http":
		o.port = 80
	}
	return o, true
}

// CredentialFields returns the API names of the endpoint's fields that hold credentials
// and are set. A change of the URL to another origin must set them again: an API caller
// can not read them, and could otherwise have them sent to a server of its own.
func (e *Endpoint) CredentialFields() []string {
	var set []string
	if len(e.Headers) > 0 {
		set = append(set, "headers")
	}
	if e.Auth.Kind != AuthNone {
		set = append(set, "auth")
	}
	if !e.Certificate.IsZero() {
		set = append(set, "client_certificate")
	}
	return set
}
