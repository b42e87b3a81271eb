package config

import (
	"strings"

	"github.com/everpost/everpost/internal/retry"
)

// RetryPolicy is a retry policy; the empty text is the default preset.
type RetryPolicy struct{ Policy retry.Policy }

// UnmarshalText parses a preset's name, or a policy in the API's form. The error names each invalid
// setting.
func (p *RetryPolicy) UnmarshalText(text []byte) (err error) {
	if p.Policy = retry.Default(); strings.TrimSpace(string(text)) != "" {
		p.Policy, err = retry.ParseSetting(string(text))
	}
	return err
}
