package egress

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// HostList is a set of hosts. The zero value is empty.
type HostList struct{ rules []hostRule }

// hostRule matches hosts; the port matters only if it is not "".
type hostRule struct {
	any    bool
	prefix netip.Prefix // of an address; invalid for a name
	name   string       // in lower case; it stands for the names below it, too
	below  bool         // only for those
	port   string
}

// NewHostList returns the hosts of a list as in NO_PROXY. An entry is one of
//
//   - shop.example: this name, and all names below it
//   - .shop.example or *.shop.example: the names below it
//   - 10.1.2.3, [fd00::1] or 10.0.0.0/8: hosts of URLs that are literal addresses
//   - *: every host
//
// each with :port or without. An entry that is none of these is left out; the configuration refuses it before.
func NewHostList(entries ...string) HostList {
	var list HostList
	for _, entry := range entries {
		if rule, ok := parseHostRule(entry); ok {
			list.rules = append(list.rules, rule)
		}
	}
	return list
}

func parseHostRule(entry string) (rule hostRule, ok bool) {
	entry = strings.ToLower(strings.TrimSpace(entry))
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		return hostRule{prefix: prefix.Masked()}, true
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return hostRule{prefix: netip.PrefixFrom(addr, addr.BitLen())}, true
	}
	if i := strings.LastIndexByte(entry, ':'); i >= 0 {
		port, err := strconv.ParseUint(entry[i+1:], 10, 16)
		if err != nil || port == 0 {
			return hostRule{}, false
		}
		rule, ok = parseHostRule(entry[:i])
		rule.port = entry[i+1:]
		return rule, ok
	}
	if entry == "*" {
		return hostRule{any: true}, true
	}
	rule.name = strings.TrimPrefix(strings.TrimPrefix(entry, "*"), ".")
	rule.below = rule.name != entry
	rule.name = strings.TrimSuffix(rule.name, ".")
	return rule, validHost(rule.name)
}

// has reports whether the list has the host of a URL.
func (l HostList) has(host, port string) bool {
	if len(l.rules) == 0 {
		return false
	}
	addr, _ := netip.ParseAddr(host) // invalid for a name: in no prefix
	name := serverName(host)
	for _, rule := range l.rules {
		if rule.port != "" && rule.port != port {
			continue
		}
		switch {
		case rule.any, rule.prefix.Contains(addr):
			return true
		case rule.name == "":
		case name == rule.name && !rule.below, strings.HasSuffix(name, "."+rule.name):
			return true
		}
	}
	return false
}

const (
	reasonDeniedHost = "the operator refuses the host (EVERPOST_DENIED_HOSTS)"
	reasonLocalName  = "a name that only a private network knows must not be used"
)

// nameReasons refuses names. Of a name that the proxy looks up no address is checked here; so it must be
// one of the public DNS. A last label that is a number makes a name an address for some parsers: "127.1", "0x7f.1".
func (g *Guard) nameReasons(host string, literal netip.Addr, port uint16) []string {
	text := strconv.Itoa(int(port))
	switch {
	case literal.IsValid(), host == "":
		return nil
	case g.hosts.has(host, text):
		return []string{reasonDeniedHost}
	case g.names == nil, g.names.NoProxy.has(host, text):
		return nil
	}
	name := serverName(host)
	last := name[strings.LastIndexByte(name, '.')+1:]
	own := slices.ContainsFunc(g.names.Own, func(own string) bool { return serverName(own) == name })
	if own || last == name || isNumber(last) || localNames().has(name, text) {
		return []string{reasonLocalName}
	}
	return nil
}

// localNames are those of RFC 6761, RFC 6762, and the one that ICANN has set aside for private networks.
func localNames() HostList { return NewHostList("localhost", "local", "internal") }

// isNumber reports whether a label is a number, decimal or hexadecimal (as in the host parser of the WHATWG's URL standard).
func isNumber(label string) bool {
	if hex, found := strings.CutPrefix(label, "0x"); found {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}
