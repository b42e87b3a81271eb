package config

import (
	"encoding"
	"fmt"
	"regexp"
	"strings"
)

// Hosts is a list of host names; Any allows all.
type Hosts struct {
	Any   bool
	Names []string // in lower case; "*.example.com" matches all names below example.com
}

var (
	_ encoding.TextUnmarshaler = (*Hosts)(nil)
	_ encoding.TextMarshaler   = Hosts{}
)

// hostName matches the name in a Host field: without scheme, port and path. IP addresses are always allowed.
var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// UnmarshalText parses "any" or a list of names separated by commas.
func (h *Hosts) UnmarshalText(text []byte) error {
	*h = Hosts{}
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	if strings.TrimSpace(string(text)) == "any" {
		h.Any = true
		return nil
	}
	for field := range strings.SplitSeq(string(text), ",") {
		name := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(field)), ".")
		if !hostName.MatchString(name) {
			return fmt.Errorf("%q is not a host name, such as everpost.internal or *.example.com, without scheme and port, nor 'any'", strings.TrimSpace(field))
		}
		h.Names = append(h.Names, name)
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (h Hosts) MarshalText() ([]byte, error) {
	if h.Any {
		return []byte("any"), nil
	}
	return []byte(strings.Join(h.Names, ",")), nil
}
