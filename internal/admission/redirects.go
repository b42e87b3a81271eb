package admission

import (
	"net/url"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// redirects is where an endpoint's answers lead that are redirects and count as delivered.
type redirects struct {
	host   string // of the last one; "" if there was none
	before string // the host that it took the place of; "" for none
	to     string // scheme, host and path of the last one, if it has strayed; "" otherwise
	since  time.Duration
}

// note notes a delivered attempt's error: webhook.RedirectError with the target, or nothing.
func (r *redirects) note(now time.Duration, text string) {
	target, found := strings.CutPrefix(text, webhook.RedirectError)
	if !found {
		r.before, r.to = "", ""
		return
	}
	to, err := url.Parse(target)
	if err != nil {
		return
	}
	switch host := to.Host; {
	case r.host == "", host == r.host:
		r.host = host
	case host == r.before:
		r.host, r.before = host, ""
	default:
		r.host, r.before = host, r.host
	}
	strayed := r.before != "" || looksLikeLogIn(to.Path)
	switch {
	case !strayed:
		r.to = ""
	case r.to == "":
		r.since = now
		fallthrough
	default:
		r.to = target
	}
}

// looksLikeLogIn reports whether the path of a page is one that asks people who they are.
func looksLikeLogIn(path string) bool {
	for segment := range strings.SplitSeq(strings.ToLower(path), "/") {
		segment = strings.NewReplacer("-", "", "_", "").Replace(segment)
		switch segment {
		case "auth", "sso", "consent":
			return true
		}
		for _, word := range [...]string{"login", "logon", "signin", "signon", "oauth", "saml"} {
			if strings.HasPrefix(segment, word) || strings.HasSuffix(segment, word) {
				return true
			}
		}
	}
	return false
}
