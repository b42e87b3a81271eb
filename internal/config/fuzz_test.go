package config_test

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// Every setting takes any text, or says that it does not.
func FuzzSettings(f *testing.F) {
	_, flags := parsed()
	flags = slices.DeleteFunc(flags, func(flag *kong.Flag) bool { return flag.Name == "help" }) // which ends the process
	for i := range flags {
		for _, seed := range []string{"", "0", "-1", "1h", "true", "localhost:http", "postgres://u:p@h/d", "*", "a,b", "\x00", "{", "99999999999999999999"} {
			f.Add(uint8(i), seed)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		var d defaults
		parser := kong.Must(&d)
		if _, err := parser.Parse([]string{"--" + flags[int(which)%len(flags)].Name + "=" + text}); err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, err := range []error{d.Config.Validate(), d.Standalone.Validate()} {
			if err != nil {
				require.Regexp(t, "EVERPOST_|TEMPORAL_", err.Error())
			}
		}
	})
}
