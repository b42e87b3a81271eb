package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// checkListen returns an error unless address is host:port. The host may be empty and the port 0.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port, for example 127.0.0.1:8080")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("has the port %q; it must be a number from 0 to 65535", port)
	}
	return nil
}

// notProxies returns what is wrong with a range of trusted proxies, or "".
func notProxies(p netip.Prefix) string {
	switch {
	case p.Bits() == 0:
		return "would let every client choose its source address; set the proxies' addresses"
	case p.Addr().Is4In6():
		return "is an IPv4 address in IPv6 form; write it as IPv4"
	case p != p.Masked():
		return "has bits beyond its length; write " + p.Masked().String() + ", or a longer prefix"
	}
	return ""
}

// validateCIDRs adds errors about ranges that are too wide or have no effect.
func (c *Config) validateCIDRs(bad *refusals) {
	for _, prefix := range c.AllowedCIDRs {
		if prefix.Bits() == 0 {
			bad.addf("EVERPOST_ALLOWED_CIDRS", "%q allows every address, those of your own network too; name the ranges that receivers are in", prefix)
		}
	}
	for name, list := range map[string][]netip.Prefix{"EVERPOST_ALLOWED_CIDRS": c.AllowedCIDRs, "EVERPOST_DENIED_CIDRS": c.DeniedCIDRs} {
		for _, prefix := range list {
			if prefix != prefix.Masked() {
				bad.addf(name, "%q has bits beyond its length; write %s, or a longer prefix", prefix, prefix.Masked())
			}
			if prefix.Addr().Is4In6() {
				bad.addf(name, "%q is a range of IPv4 addresses in IPv6 form, which are refused anyway; write it as IPv4", prefix)
			}
		}
	}
}

// validHost is the form of a name in lists of hosts.
var validHost = regexp.MustCompile(`^(?i:[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.(?i:[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?))*\.?$`)

// validateProxy adds errors about the egress proxy and about lists of hosts. No error contains the proxy's URL.
func (c *Config) validateProxy(bad *refusals) {
	if c.EgressProxy != "" && c.EgressProxyURL() == nil {
		bad.addf("EVERPOST_EGRESS_PROXY", "must be http://host:port or https://host:port, with user:password@ before the host or without")
	}
	if c.EgressProxy == "" && c.EgressProxyNames {
		bad.addf("EVERPOST_EGRESS_PROXY_NAMES", "is set without EVERPOST_EGRESS_PROXY")
	}
	for _, entry := range c.DeniedHosts {
		if !validHost.MatchString(withoutWildcard(entry)) || isAddress(entry) {
			bad.addf("EVERPOST_DENIED_HOSTS", "%q is not a host name; ranges of addresses belong into EVERPOST_DENIED_CIDRS", entry)
		}
	}
	for _, entry := range c.NoProxy {
		if !isHostEntry(entry) {
			bad.addf("EVERPOST_NO_PROXY", "%q is neither a host name nor an address or a range of addresses, with :port or without", entry)
		}
	}
}

func withoutWildcard(entry string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(entry), "*"), ".")
}

// isAddress reports whether the text is an address or a range of addresses.
func isAddress(text string) bool {
	_, notAddr := netip.ParseAddr(strings.Trim(text, "[]"))
	_, notPrefix := netip.ParsePrefix(text)
	return notAddr == nil || notPrefix == nil
}

// isHostEntry reports whether the text is an entry of EVERPOST_NO_PROXY.
func isHostEntry(entry string) bool {
	entry = strings.TrimSpace(entry)
	if entry == "*" || isAddress(entry) {
		return true
	}
	if host, port, found := strings.Cut(entry, ":"); found && !strings.HasPrefix(entry, "[") {
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0 && (isAddress(host) || validHost.MatchString(withoutWildcard(host)))
	}
	if host, port, err := net.SplitHostPort(entry); err == nil { // [fd00::1]:443
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0 && isAddress(host)
	}
	return validHost.MatchString(withoutWildcard(entry))
}

// EgressProxyURL returns EgressProxy as a URL, or nil if it is empty or invalid.
func (c *Config) EgressProxyURL() *url.URL {
	u, err := url.Parse(c.EgressProxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil
	}
	return u
}
