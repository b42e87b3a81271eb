package config

import (
	"encoding"
	"fmt"
	"strconv"
	"strings"
)

// Ports is a list of destination ports; Any allows all.
type Ports struct {
	Any  bool
	List []uint16
}

var (
	_ encoding.TextUnmarshaler = (*Ports)(nil)
	_ encoding.TextMarshaler   = Ports{}
)

// UnmarshalText parses "any" or a list of ports separated by commas.
func (p *Ports) UnmarshalText(text []byte) error {
	*p = Ports{}
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	if strings.TrimSpace(string(text)) == "any" {
		p.Any = true
		return nil
	}
	for field := range strings.SplitSeq(string(text), ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(field), 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is not a port between 1 and 65535, nor 'any'", strings.TrimSpace(field))
		}
		p.List = append(p.List, uint16(port))
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p Ports) MarshalText() ([]byte, error) {
	if p.Any {
		return []byte("any"), nil
	}
	fields := make([]string, len(p.List))
	for i, port := range p.List {
		fields[i] = strconv.Itoa(int(port))
	}
	return []byte(strings.Join(fields, ",")), nil
}
