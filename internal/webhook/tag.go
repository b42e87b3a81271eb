package webhook

import "strings"

// Limits of an event's tags. api/openapi.yaml documents them.
const (
	MaxTags      = 10
	MaxTagLength = 64
)

// ValidTag reports whether t is a tag: letters, digits and . : / - _, all ASCII, 1 to MaxTagLength of them. Case is significant.
func ValidTag(t string) bool {
	for _, c := range []byte(t) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte(typeSeparators, c) < 0 {
			return false
		}
	}
	return t != "" && len(t) <= MaxTagLength
}
