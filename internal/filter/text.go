package filter

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file read JSON that is valid. Of any other text they return something, and they end.

// kind is the type of a JSON value.
type kind uint8

const (
	kindNone kind = iota // no JSON
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// kindOf is the type of the value that begins with a byte.
func kindOf(first byte) kind {
	switch first {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return kindNumber
	}
	return kindNone
}

// skipSpace returns the first place from i on that is not white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the place after the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; i < len(text); {
		end := bytes.IndexByte(text[i:], '"')
		if end < 0 {
			return len(text)
		}
		end += i
		escapes := 0
		for end-escapes > i && text[end-escapes-1] == '\\' {
			escapes++
		}
		i = end + 1
		if escapes%2 == 0 {
			return i
		}
	}
	return len(text)
}

// skipWord returns the place after the number, true, false or null that begins at i.
func skipWord(text []byte, i int) int {
	for i < len(text) {
		switch text[i] {
		case ',', ']', '}', ':', '"', '[', '{', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// quoted returns what is between the quotes of a string, and whether it has escapes.
func quoted(text []byte) (inside []byte, escaped bool) {
	if len(text) < 2 {
		return nil, false
	}
	inside = text[1 : len(text)-1]
	return inside, bytes.IndexByte(inside, '\\') >= 0
}

// unescape returns the string of what is between its quotes. A surrogate without its other half becomes three bytes that no valid string
// has, so that it is equal to none of a filter's.
func unescape(inside []byte) []byte {
	out := make([]byte, 0, len(inside))
	for i := 0; i < len(inside); i++ {
		if inside[i] != '\\' || i+1 == len(inside) {
			out = append(out, inside[i])
			continue
		}
		i++
		switch c := inside[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(inside[i+1:])
			i += 4
			if low := inside[min(i+1, len(inside)):]; utf16.IsSurrogate(r) && len(low) >= 6 && low[0] == '\\' && low[1] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(low[2:])); pair != utf8.RuneError {
					r = pair
					i += 6
				}
			}
			out = appendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// appendRune appends a character, or half of a surrogate pair as if it were one.
func appendRune(out []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf) //nolint:gosec // the bits of UTF-8
	}
	return utf8.AppendRune(out, r)
}

// hex4 reads four hexadecimal digits.
func hex4(text []byte) rune {
	var r rune
	for _, c := range text[:min(4, len(text))] {
		r <<= 4
		switch {
		case c >= '0' && c <= '9':
			r |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			r |= rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			r |= rune(c-'A') + 10
		}
	}
	return r
}

// appendQuoted appends a string as JSON.
func appendQuoted(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
