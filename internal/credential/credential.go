// Package credential reads keys and secrets as they are handed over: in files, environment variables, headers and forms. Editors, shells
// and copying add to them what nobody sees.
package credential

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Trim removes what is invisible around a key or secret: white space, line breaks, byte order marks, zero-width and control characters.
func Trim(text string) string { return strings.TrimFunc(text, invisible) }

// Clean is Trim for a credential that has no invisible character inside, but possibly spaces if it may be a phrase. The error is a phrase
// that names the character, and follows the name of the setting. It does not repeat the text.
func Clean(text string, phrase bool) (string, error) {
	text = Trim(text)
	for _, r := range text {
		switch {
		case r == ' ' && phrase || !invisible(r):
		case r == '\n' || r == '\r':
			return "", errors.New("has a line break inside: it must be one line, and nothing else")
		case r == ' ':
			return "", errors.New("has a space inside")
		default:
			return "", fmt.Errorf("has an invisible character (U+%04X) inside: type it again, or copy it from its source", r)
		}
	}
	return text, nil
}

// invisible reports white space, control characters and those of the category Cf, such as U+FEFF, U+200B and U+2060; and U+FFFD, which
// stands for bytes that are no UTF-8 when it is ranged over, and in a credential for a file in another encoding.
func invisible(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
}
