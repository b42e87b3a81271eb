package config

import (
	"encoding"
	"strings"

	"github.com/everpost/everpost/internal/retry"
)

// RetryPolicy is a retry policy as it was set; nothing is the preset default.
type RetryPolicy struct{ Policy retry.Policy }

// UnmarshalText reads a preset's name, or a policy as the API takes it. The error names
// each setting that is refused.
func (p *RetryPolicy) UnmarshalText(text []byte) (err error) {
	if p.Policy = retry.Default(); strings.TrimSpace(string(text)) != "" {
		p.Policy, err = retry.ParseSetting(string(text))
	}
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (p RetryPolicy) MarshalText() ([]byte, error) {
	if preset, found := retry.Lookup(p.Policy.Preset); found && preset.Equal(p.Policy) {
		return []byte(p.Policy.Preset), nil
	}
	return p.Policy.MarshalJSON()
}

var (
	_ encoding.TextUnmarshaler = (*RetryPolicy)(nil)
	_ encoding.TextMarshaler   = RetryPolicy{}
)
