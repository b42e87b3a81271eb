package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Console has the settings of the web console at /console.
type Console struct {
	// ConsoleSwitch switches the console on or off.
	ConsoleSwitch string `default:"on" enum:"on,off" env:"EVERPOST_CONSOLE" help:"Web console at '/console' on the API's address: 'on' or 'off'." name:"console" placeholder:"on|off" role:"api" section:"console" see:"console.md"`

	// ConsoleURL is the address of the API and console for browsers, for links to the console.
	ConsoleURL string `env:"EVERPOST_CONSOLE_URL" help:"Address of the console and the portal for browsers, without a path, as 'https://hooks.example.com'." name:"console-url" placeholder:"URL" role:"api" section:"console" see:"portal.md" unset:"the address that a request came to"`

	// ConsoleName and ConsoleColor are the console's title and accent.
	ConsoleName  string `default:"Everpost" env:"EVERPOST_CONSOLE_NAME" help:"Name in the console's title and header, 1 to 40 characters." name:"console-name" placeholder:"NAME" role:"api" section:"console"`
	ConsoleColor string `default:"#0b6e6e" env:"EVERPOST_CONSOLE_COLOR" help:"Accent colour of the console and of the pages at /docs, as '#rrggbb'." name:"console-color" placeholder:"#rrggbb" role:"api" section:"console"`

	// ConsoleFrameAncestors are the origins whose pages may show a portal in a frame.
	ConsoleFrameAncestors []string `env:"EVERPOST_CONSOLE_FRAME_ANCESTORS" help:"Origins whose pages may show a portal in a frame, as 'https://app.example.com', separated by commas." name:"console-frame-ancestors" placeholder:"ORIGIN,..." role:"api" section:"console" see:"portal.md#embed-it" unset:"none"`
}

// maxConsoleName is the length of ConsoleName in characters.
const maxConsoleName = 40

// validate adds an error for each invalid setting of the console.
func (c *Console) validate(bad *refusals) {
	if c.ConsoleURL != "" && !isOrigin(c.ConsoleURL) {
		bad.addf("EVERPOST_CONSOLE_URL", "must be http:// or https:// and a host, without a path")
	}
	if c.ConsoleName != "" && (utf8.RuneCountInString(c.ConsoleName) > maxConsoleName || strings.ContainsFunc(c.ConsoleName, notPrintable)) {
		bad.addf("EVERPOST_CONSOLE_NAME", "must be 1 to %d printable characters", maxConsoleName)
	}
	if c.ConsoleColor != "" && !regexp.MustCompile(`^#[0-9a-fA-F]{6}$`).MatchString(c.ConsoleColor) {
		bad.addf("EVERPOST_CONSOLE_COLOR", "must be a colour of the form #rrggbb")
	}
	if slices.ContainsFunc(c.ConsoleFrameAncestors, func(origin string) bool { return !isOrigin(origin) }) {
		bad.addf("EVERPOST_CONSOLE_FRAME_ANCESTORS", "must be origins such as https://app.example.com, separated by commas")
	}
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }

// isOrigin reports whether the text is a scheme and a host, in a spelling that can stand in a header.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && text == u.Scheme+"://"+u.Host &&
		!strings.ContainsAny(u.Host, " ;,'\"*")
}
