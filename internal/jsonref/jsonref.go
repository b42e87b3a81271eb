// Package jsonref follows references within a JSON document, as the $ref of JSON Schema and OpenAPI has them. It is pure.
package jsonref

import (
	"net/url"
	"strconv"
	"strings"
)

// Target is the object that the $ref of an object leads to within the document; nil without one, and if Find finds no object.
func Target(document, object map[string]any) map[string]any {
	ref, _ := object["$ref"].(string)
	if ref == "" {
		return nil
	}
	target, _ := Find(document, ref).(map[string]any)
	return target
}

// Find is the value that a reference leads to in a decoded document: "#" is the whole, and "#/$defs/line" is the part at a JSON pointer, which is escaped as
// in a URL (RFC 6901, section 6). nil if there is none, and for a reference to an anchor or to another document.
func Find(document any, ref string) any {
	fragment, local := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(fragment)
	if !local || err != nil {
		return nil
	}
	if pointer == "" {
		return document
	}
	rest, found := strings.CutPrefix(pointer, "/")
	if !found { // an anchor
		return nil
	}
	at := document
	for token := range strings.SplitSeq(rest, "/") {
		switch of := at.(type) {
		case map[string]any:
			at = of[Unescaped(token)]
		case []any:
			if at = nil; IsIndex(token, len(of)) {
				n, _ := strconv.Atoi(token)
				at = of[n]
			}
		default:
			return nil
		}
	}
	return at
}

// Name is the name that one part of a reference stands for: "a~1b%20c" for "a/b c".
func Name(part string) string {
	if plain, err := url.PathUnescape(part); err == nil {
		part = plain
	}
	return Unescaped(part)
}

// Unescaped is the name that a part of a JSON pointer stands for (RFC 6901, section 4).
func Unescaped(token string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(token) }

// IsIndex reports whether a part of a JSON pointer is the index of an element: digits without leading zeros.
func IsIndex(token string, length int) bool {
	n, err := strconv.Atoi(token)
	return err == nil && n >= 0 && n < length && strconv.Itoa(n) == token
}
