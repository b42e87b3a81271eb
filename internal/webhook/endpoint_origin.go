package webhook

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// SameOrigin reports whether two URLs lead to the same place: scheme, host and port (RFC
// 6454, section 4), whatever the case and however the default port and an address are
// spelled. What is no URL leads nowhere, and so to no place that is the same.
func SameOrigin(one, other string) bool {
	a, ok := originOf(one)
	b, alsoOK := originOf(other)
	return ok && alsoOK && a == b
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

// CredentialFields are the fields of the endpoint that hold credentials and are set, by
// their names in the API. Those must not follow its URL to another origin unless who moves
// it knows them: whoever may change an endpoint cannot read them, and could so find out.
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
