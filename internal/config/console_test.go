package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func TestConsoleSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  config.Console
		says string // "" if it is valid
	}{
		"nothing":        {config.Console{}, ""},
		"all":            {config.Console{ConsoleSwitch: "off", ConsoleURL: "https://a.example:8443", ConsoleName: "Acme", ConsoleColor: "#12Ab3f"}, ""},
		"frames":         {config.Console{ConsoleFrameAncestors: []string{"https://app.example.com", "http://localhost:3000"}}, ""},
		"url with path":  {config.Console{ConsoleURL: "https://a.example/x"}, "EVERPOST_CONSOLE_URL"},
		"url of script":  {config.Console{ConsoleURL: "javascript:alert(1)"}, "EVERPOST_CONSOLE_URL"},
		"colour":         {config.Console{ConsoleColor: "red"}, "EVERPOST_CONSOLE_COLOR"},
		"colour injects": {config.Console{ConsoleColor: "#112233;}"}, "EVERPOST_CONSOLE_COLOR"},
		"name":           {config.Console{ConsoleName: "a\nb"}, "EVERPOST_CONSOLE_NAME"},
		"long name":      {config.Console{ConsoleName: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "EVERPOST_CONSOLE_NAME"},
		"any ancestor":   {config.Console{ConsoleFrameAncestors: []string{"*"}}, "EVERPOST_CONSOLE_FRAME_ANCESTORS"},
		"wild ancestor":  {config.Console{ConsoleFrameAncestors: []string{"https://*.example.com"}}, "EVERPOST_CONSOLE_FRAME_ANCESTORS"},
		"header injects": {config.Console{ConsoleFrameAncestors: []string{"https://a.example; script-src *"}}, "EVERPOST_CONSOLE_FRAME_ANCESTORS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := (&config.Config{Console: c.set}).Validate()
			if c.says == "" {
				if err != nil {
					require.NotContains(t, err.Error(), "EVERPOST_CONSOLE")
				}
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}
