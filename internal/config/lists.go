package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Hosts is a list of host names; Any allows all.
type Hosts struct {
	Any   bool
	Names []string // in lower case; "*.example.com" matches all names below example.com
}

// hostName matches the name in a Host field: without scheme, port and path. IP addresses are always allowed.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// UnmarshalText parses "any" or a list of names separated by commas.
func (h *Hosts) UnmarshalText(text []byte) error {
	*h = Hosts{}
	names, all := splitList(text)
	h.Any = all
	for _, given := range names {
		name := strings.TrimSuffix(strings.ToLower(given), ".")
		if !hostName.MatchString(name) {
			return fmt.Errorf("%q is not a host name, such as everpost.internal or *.example.com, without scheme and port, nor 'any'", given)
		}
		h.Names = append(h.Names, name)
	}
	return nil
}

// String is the list as UnmarshalText parses it.
func (h Hosts) String() string {
	if h.Any {
		return "any"
	}
	return strings.Join(h.Names, ",")
}

// Ports is a list of destination ports; Any allows all.
type Ports struct {
	Any  bool
	List []uint16
}

// UnmarshalText parses "any" or a list of ports separated by commas.
func (p *Ports) UnmarshalText(text []byte) error {
	*p = Ports{}
	ports, all := splitList(text)
	p.Any = all
	for _, given := range ports {
		port, err := strconv.ParseUint(given, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is not a port between 1 and 65535, nor 'any'", given)
		}
		p.List = append(p.List, uint16(port))
	}
	return nil
}

// String is the list as UnmarshalText parses it.
func (p Ports) String() string {
	if p.Any {
		return "any"
	}
	all := make([]string, len(p.List))
	for i, port := range p.List {
		all[i] = strconv.Itoa(int(port))
	}
	return strings.Join(all, ",")
}

// splitList returns the entries of a list separated by commas, or all for the word "any".
func splitList(text []byte) (entries []string, all bool) {
	switch trimmed := strings.TrimSpace(string(text)); trimmed {
	case "":
		return nil, false
	case "any":
		return nil, true
	default:
		for entry := range strings.SplitSeq(trimmed, ",") {
			entries = append(entries, strings.TrimSpace(entry))
		}
		return entries, false
	}
}
