// Package printable makes foreign text fit for a terminal.
package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Text returns text with escape sequences in place of characters that control a terminal, end a line
// or change the writing direction.
func Text(text string) string {
	clean := true
	for _, r := range text {
		clean = clean && unicode.IsPrint(r)
	}
	if clean {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
