package egress

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxURLBytes is the longest URL an endpoint may have.
const MaxURLBytes = 2048

// target is a URL that passed the guard, taken apart for dialling.
type target struct {
	url     *url.URL
	host    string         // without brackets and port
	address string         // host:port as net.Dial wants it
	exempt  netip.AddrPort // let through by the dial check although not public

	certificate *tls.Certificate // of ours; nil for none
}

// CheckURL parses the URL of an endpoint and returns a *DeniedError when no
// request may be sent to it. It is asked when an endpoint is created or changed
// and again before every request, because the operator's policy may have changed
// in between.
//
// Literal addresses are judged here; names only when they are dialled. What looks
// like an address but is none for Go ("127.1", "2130706433") is a name: it goes
// to the resolver, and the dial check sees the address that comes back.
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
	if len(raw) > MaxURLBytes {
		return target{}, denied("must not be longer than " + strconv.Itoa(MaxURLBytes) + " bytes")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, denied("is not a valid URL") // the parser's error repeats the URL
	}
	switch {
	case u.Scheme == "":
		return target{}, denied("must begin with https://")
	case u.Scheme != "https" && u.Scheme != "http":
		return target{}, g.deniedScheme()
	case u.User != nil:
		return target{}, denied("must not contain a user name or password")
	case strings.Contains(raw, "#"):
		return target{}, denied("must not contain a fragment")
	case u.Hostname() == "":
		return target{}, denied("the host is missing")
	}

	port, err := portOf(u)
	if err != nil {
		return target{}, err
	}
	host := u.Hostname()
	t := target{url: u, host: host, address: net.JoinHostPort(host, strconv.Itoa(int(port)))}

	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Is6() != (u.Host[0] == '[') {
			return target{}, denied("the host is not valid")
		}
		literal := netip.AddrPortFrom(addr, port)
		if exempt.IsValid() && literal == exempt {
			t.exempt = exempt
			return t, nil
		}
		if u.Scheme == "http" && !g.allowHTTP {
			return target{}, g.deniedScheme()
		}
		return t, g.CheckAddr(literal)
	}
	if u.Scheme == "http" && !g.allowHTTP {
		return target{}, g.deniedScheme()
	}
	if !validHost(host) || u.Host[0] == '[' {
		return target{}, denied("the host is not valid (names beyond ASCII are written in their xn-- form)")
	}
	return t, g.checkPort(port)
}

func (g *Guard) deniedScheme() error {
	if g.allowHTTP {
		return denied("only https and http are allowed")
	}
	return denied("only https is allowed")
}

func portOf(u *url.URL) (uint16, error) {
	text := u.Port()
	switch {
	case text == "" && strings.HasSuffix(u.Host, ":"):
		return 0, denied("the port is not valid")
	case text == "" && u.Scheme == "https":
		return 443, nil
	case text == "":
		return 80, nil
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
