package admission

import (
	"net/url"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// maxRedirect bounds the target of a redirect that is looked at, in bytes: it is shared with other processes.
const maxRedirect = 600

// redirects is where an endpoint's answers lead that are redirects and count as delivered.
type redirects struct {
	host   string // of the last one; "" if there was none
	before string // the host of before, if that is another one; "" otherwise
	to     string // scheme, host and path of the last one, if it has strayed; "" otherwise
	since  time.Duration
}

// strayed reports whether the last one is worth a warning. r may be nil.
func (r *redirects) strayed() bool { return r != nil && r.to != "" }

// note notes a delivered attempt's error: webhook.RedirectError with the target, or nothing. r may be nil, and the result is what r becomes.
func (r *redirects) note(now time.Duration, text string) *redirects {
	target, found := strings.CutPrefix(text, webhook.RedirectError)
	if !found {
		if r != nil && r.before != "" {
			r.host = r.before
		}
		if r != nil {
			r.before, r.to = "", ""
		}
		return r
	}
	to, err := url.Parse(target)
	if err != nil || len(target) > maxRedirect {
		return r
	}
	if r == nil {
		r = &redirects{}
	}
	switch host := strings.ToLower(to.Host); {
	case r.host == "", host == r.host:
		r.host = host
	case host == r.before:
		r.host, r.before = host, ""
	case r.before == "":
		r.host, r.before = host, r.host
	default:
		r.host = host
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
	return r
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
