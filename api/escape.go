package api

import (
	"unicode/utf16"
	"unicode/utf8"
)

// unescape resolves the escapes of a string that quoted has read. It encodes an unpaired
// surrogate like a character, so that different ones remain different when names are compared,
// and then whole is false.
func unescape(raw []byte) (text []byte, whole bool) {
	text, whole = make([]byte, 0, len(raw)), true
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			i++
			continue
		}
		if c := raw[i+1]; c != 'u' {
			text = append(text, shortEscape(c))
			i += 2
			continue
		}
		unit, _ := hex4(raw[i+2:])
		i += 6
		if !utf16.IsSurrogate(unit) {
			text = utf8.AppendRune(text, unit)
			continue
		}
		if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
			low, _ := hex4(raw[i+2:])
			if pair := utf16.DecodeRune(unit, low); pair != utf8.RuneError {
				text = utf8.AppendRune(text, pair)
				i += 6
				continue
			}
		}
		whole = false
		text = append(text, 0xe0|byte(unit>>12), 0x80|byte(unit>>6)&0x3f, 0x80|byte(unit)&0x3f) //nolint:gosec // the bytes of a 16-bit unit
	}
	return text, whole
}

func shortEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hex4 parses four hexadecimal digits.
func hex4(b []byte) (unit rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			unit = unit<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			unit = unit<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			unit = unit<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
