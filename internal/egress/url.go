package egress

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// target is a URL that passed the guard, taken apart for dialling.
type target struct {
	url     *url.URL
	host    string         // without brackets and port
	address string         // host:port as net.Dial wants it
	exempt  netip.AddrPort // let through by the dial check although not public
	named   bool           // the host is a name that has to be looked up

	endpoint    string           // whose the URL is; "" for that of a token server
	certificate *tls.Certificate // of ours; nil for none
}

// CheckURL parses the URL of an endpoint and returns a *DeniedError when no
// request may be sent to it. It is asked when an endpoint is created or changed
// and again before every request, because the operator's policy may have changed
// in between. The error has everything that is wrong.
//
// Literal addresses are judged here; names only when they are dialled. What looks
// like an address but is none for Go ("127.1", "2130706433") is a name: it goes
// to the resolver, and the dial check sees the address that comes back. The name
// "localhost" is judged as the addresses that it stands for.
func (g *Guard) CheckURL(raw string) (*url.URL, error) {
	t, err := g.target(raw, netip.AddrPort{})
	if err != nil {
		return nil, err
	}
	return t.url, nil
}

// target is CheckURL with one address exempted: a URL whose host is literally that
// address may be http, on any port, and may be dialled. A name that resolves to it
// gains nothing.
func (g *Guard) target(raw string, exempt netip.AddrPort) (target, error) {
	if len(raw) > webhook.MaxURLBytes {
		return target{}, denied("must not be longer than " + strconv.Itoa(webhook.MaxURLBytes) + " bytes")
	}
	var wrong []string
	plain := plainPath(raw)
	if plain != raw {
		wrong = append(wrong, "must not contain blanks, control characters or characters beyond ASCII after the host (write them as %20, %C3%BC, …)")
	}
	u, err := url.Parse(plain)
	if err != nil {
		return target{}, denied(append(wrong, "is not a valid URL")...) // the parser's error repeats the URL
	}
	if u.Scheme == "" {
		return target{}, denied(append(wrong, "must begin with https://")...)
	}
	t := target{url: u, host: u.Hostname()}
	port, portErr := portOf(u)
	literal, err := netip.ParseAddr(t.host)
	if err == nil && exempt.IsValid() && netip.AddrPortFrom(literal, port) == exempt && (u.Scheme == "https" || u.Scheme == "http") {
		t.exempt = exempt
		wrong = append(wrong, g.wrongExempt(literal)...)
	} else {
		wrong = append(wrong, g.wrongScheme(u.Scheme)...)
		wrong = append(wrong, g.wrongHost(u, literal)...)
	}
	if u.User != nil {
		wrong = append(wrong, "must not contain a user name or password")
	}
	if strings.Contains(raw, "#") {
		wrong = append(wrong, "must not contain a fragment")
	}
	switch {
	case portErr != nil:
		wrong = append(wrong, portErr.Error())
	case !t.exempt.IsValid() && t.host != "":
		wrong = append(wrong, g.wrongPort(port)...)
	}
	if len(wrong) > 0 {
		return target{}, denied(wrong...)
	}
	t.named = !literal.IsValid() && !isLocalhost(t.host)
	t.address = net.JoinHostPort(t.host, strconv.Itoa(int(port)))
	return t, nil
}

// wrongHost is why no request may go to the URL's host, nil when it may. The literal is
// its address, if it is one and no name.
func (g *Guard) wrongHost(u *url.URL, literal netip.Addr) []string {
	host := u.Hostname()
	switch {
	case host == "":
		return []string{"the host is missing"}
	case literal.IsValid() && literal.Is6() != (u.Host[0] == '['):
		return []string{"the host is not valid"}
	case literal.IsValid():
		return g.wrongAddr(literal)
	case !validHost(host) || u.Host[0] == '[':
		return []string{"the host is not valid (names beyond ASCII are written in their xn-- form)"}
	case isLocalhost(host):
		return g.wrongLocalhost()
	default:
		return nil
	}
}

// plainPath is the URL with everything replaced that may stand in a URL after its host in
// its escaped form only. net/http would write such a query as it is, and a blank in it
// ends the request's target: /?x HTTP/1.1.
func plainPath(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	host := strings.IndexAny(rest, "/?#")
	if host < 0 {
		return raw // what is wrong with a host is found otherwise, and that there is none
	}
	text := []byte(raw)
	for i := len(raw) - len(rest) + host; i < len(text); i++ {
		if text[i] <= ' ' || text[i] >= 0x7f {
			text[i] = '_'
		}
	}
	return string(text)
}

func (g *Guard) wrongScheme(scheme string) []string {
	switch {
	case scheme == "https", scheme == "http" && g.allowHTTP:
		return nil
	case g.allowHTTP:
		return []string{"only https and http are allowed"}
	case scheme == "http":
		return []string{"only https is allowed (EVERPOST_ALLOW_HTTP=true allows http)"}
	default:
		return []string{"only https is allowed"}
	}
}

// isLocalhost reports whether the name stands for loopback and nothing else (RFC 6761,
// section 6.3): what it leads to is no secret.
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// wrongLocalhost: one of the two families is enough.
func (g *Guard) wrongLocalhost() []string {
	wrong := g.wrongAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if g.wrongAddr(netip.IPv6Loopback()) == nil {
		return nil
	}
	return wrong
}

func portOf(u *url.URL) (uint16, error) {
	text := u.Port()
	switch {
	case text == "" && strings.HasSuffix(u.Host, ":"):
		return 0, denied("the port is not valid")
	case text == "" && u.Scheme == "http":
		return 80, nil
	case text == "":
		return 443, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, denied("the port is not valid")
	}
	return uint16(port), nil
}

// validHost reports whether the name has the form of RFC 1123, section 2.1, with
// underscores tolerated and one dot at the end. Everything else is refused so that
// no two readers of the URL can see different hosts in it.
func validHost(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			letter := 'a' <= c|0x20 && c|0x20 <= 'z'
			digit := '0' <= c && c <= '9'
			if !letter && !digit && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
