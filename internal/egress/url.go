package egress

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// target is a parsed URL that passed the guard.
type target struct {
	url       *url.URL
	host      string         // without brackets and port
	authority string         // of the Host field: lower case, without a final dot and the scheme's own port
	path      string         // of the request line: path and query as configured
	address   string         // host:port for net.Dial
	exempt    netip.AddrPort // allowed by the dial check although not public
	named     bool           // the host is a name that must be resolved

	endpoint    string           // id of the URL's endpoint; "" for a token server's URL
	tenant      string           // whose look-ups of names are used
	certificate *tls.Certificate // client certificate; nil for none
	maxTLS      uint16           // the highest version of TLS; 0 for any
}

// port is the port, with the scheme's own one if the URL has none.
func (t *target) port() string {
	_, port, _ := net.SplitHostPort(t.address) // always host:port
	return port
}

// brokenEscape is a percent sign that escapes nothing.
var brokenEscape = regexp.MustCompile(`%([^0-9A-Fa-f]|[0-9A-Fa-f]([^0-9A-Fa-f]|$)|$)`)

// whyInvalid is why a URL cannot be parsed.
func whyInvalid(raw string) string {
	if brokenEscape.MatchString(raw) {
		return "has a % that is not followed by two hexadecimal digits (write it as %25); is not a valid URL"
	}
	return "is not a valid URL"
}

// CheckURL parses the URL of an endpoint and returns a *DeniedError with all reasons when
// no request may be sent to it. It runs when an endpoint is created or changed and again
// before every request, because the operator's policy may have changed in between.
//
// Literal addresses are checked here, names only when they are dialled. A host that looks
// like an address but is none for Go ("127.1", "2130706433") is a name: the resolver gets
// it, and the dial check sees the resulting address. The name "localhost" is checked as the
// loopback addresses.
func (g *Guard) CheckURL(raw string) (*url.URL, error) {
	t, err := g.target(raw, netip.AddrPort{})
	if err != nil {
		return nil, err
	}
	return t.url, nil
}

// target is CheckURL with one exempt address: a URL whose host is literally that address
// may be http, on any port, and may be dialled. A name that resolves to it is not exempt.
func (g *Guard) target(raw string, exempt netip.AddrPort) (target, error) {
	if len(raw) > webhook.MaxURLBytes {
		return target{}, denied("must not be longer than " + strconv.Itoa(webhook.MaxURLBytes) + " bytes")
	}
	var reasons []string
	plain := plainPath(raw)
	if plain != raw {
		reasons = append(reasons, "must not contain blanks, control characters or characters beyond ASCII after the host (write them as %20, %C3%BC, …)")
	}
	u, err := url.Parse(plain)
	if err != nil {
		return target{}, denied(append(reasons, whyInvalid(plain))...) // the parser's error repeats the URL
	}
	if u.Scheme == "" {
		return target{}, denied(append(reasons, "must begin with https://")...)
	}
	t := target{url: u, host: u.Hostname()}
	port, portErr := portOf(u)
	literal, err := netip.ParseAddr(t.host)
	if err == nil && exempt.IsValid() && netip.AddrPortFrom(literal, port) == exempt && (u.Scheme == "https" || u.Scheme == "http") {
		t.exempt = exempt
		reasons = append(reasons, g.deniedReasons(literal)...)
	} else {
		reasons = append(reasons, g.schemeReasons(u.Scheme)...)
		reasons = append(reasons, g.hostReasons(u, literal)...)
	}
	if u.User != nil {
		reasons = append(reasons, "must not contain a user name or password")
	}
	if strings.Contains(raw, "#") {
		reasons = append(reasons, "must not contain a fragment")
	}
	switch {
	case portErr != nil:
		reasons = append(reasons, portErr.Error())
	case !t.exempt.IsValid() && t.host != "":
		reasons = append(reasons, g.portReasons(port)...)
	}
	t.named = !literal.IsValid() && !isLocalhost(t.host)
	reasons = append(reasons, g.nameReasons(t.host, literal, port)...)
	if len(reasons) == 0 && !t.exempt.IsValid() && !t.named {
		reasons = g.ownReasons(literal, port)
	}
	if len(reasons) > 0 {
		return target{}, denied(reasons...)
	}
	t.address = net.JoinHostPort(t.host, strconv.Itoa(int(port)))
	t.authority, t.path = authorityOf(u, port), pathOf(raw)
	return t, nil
}

// serverName is the host as the certificate has to name it: in lower case and without a final dot.
func serverName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// authorityOf returns the value of the Host field. Its host is the name in the TLS handshake
// (SNI): receivers that compare the two refuse requests in which they differ.
func authorityOf(u *url.URL, port uint16) string {
	host := serverName(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if u.Scheme == "https" && port == 443 || u.Scheme == "http" && port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// pathOf returns what follows the host in a URL that has a host, byte for byte.
func pathOf(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	start := strings.IndexAny(rest, "/?")
	switch {
	case start < 0:
		return "/"
	case rest[start] == '?':
		return "/" + rest[start:]
	default:
		return rest[start:]
	}
}

// hostReasons returns why no request may go to the URL's host, nil when it may. literal is
// the host's address, the zero value if the host is a name.
func (g *Guard) hostReasons(u *url.URL, literal netip.Addr) []string {
	host := u.Hostname()
	switch {
	case host == "":
		return []string{"the host is missing"}
	case literal.IsValid() && literal.Is6() != (u.Host[0] == '['):
		return []string{"the host is not valid"}
	case literal.IsValid():
		return g.addrReasons(literal)
	case !validHost(host) || u.Host[0] == '[':
		return []string{"the host is not valid (names beyond ASCII are written in their xn-- form)"}
	case isLocalhost(host):
		return g.localhostReasons()
	default:
		return nil
	}
}

// plainPath returns the URL with every byte after the host replaced that must be
// percent-encoded there. net/http would write such a query unchanged, and a blank in it
// ends the request target: /?x HTTP/1.1.
func plainPath(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	host := strings.IndexAny(rest, "/?#")
	if host < 0 {
		return raw // later checks report an invalid or missing host
	}
	text := []byte(raw)
	for i := len(raw) - len(rest) + host; i < len(text); i++ {
		if text[i] <= ' ' || text[i] >= 0x7f {
			text[i] = '_'
		}
	}
	return string(text)
}

func (g *Guard) schemeReasons(scheme string) []string {
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

// isLocalhost reports whether the name always resolves to loopback (RFC 6761, section 6.3),
// so that its address is not confidential.
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// localhostReasons returns nil when the guard allows IPv4 or IPv6 loopback.
func (g *Guard) localhostReasons() []string {
	reasons := g.addrReasons(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if g.addrReasons(netip.IPv6Loopback()) == nil {
		return nil
	}
	return reasons
}

// ownReasons returns why no request may go to a port of a literal address, or of localhost, where the
// installation listens.
func (g *Guard) ownReasons(literal netip.Addr, port uint16) []string {
	if literal.IsValid() {
		return g.listenerReasons(netip.AddrPortFrom(literal, port))
	}
	for _, loopback := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if reasons := g.listenerReasons(netip.AddrPortFrom(loopback, port)); reasons != nil {
			return reasons
		}
	}
	return nil
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
// underscores and one trailing dot tolerated. Everything else is refused so that no two
// parsers of the URL see different hosts.
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
