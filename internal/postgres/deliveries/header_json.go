package deliveries

import (
	"slices"

	"github.com/everpost/everpost/internal/postgres"
)

// HeaderJSON is what json.Marshal makes of a header, without its reflection, which cost as much
// as the HTTP exchange's reading: two of every attempt are stored. value appends a value, and
// says whether it is plain; a header that is not is left to json.Marshal.
func HeaderJSON[V any](header map[string]V, value func([]byte, V) ([]byte, bool)) []byte {
	if header == nil {
		return []byte("null")
	}
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	text := make([]byte, 0, 64*len(header)+2) //nolint:mnd // bytes, for most
	var plain bool
	for i, name := range names {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		if text, plain = appendText(append(text, separator), name); !plain {
			return postgres.JSONBytes(header)
		}
		if text, plain = value(append(text, ':'), header[name]); !plain {
			return postgres.JSONBytes(header)
		}
	}
	if len(header) == 0 {
		text = append(text, '{')
	}
	return append(text, '}')
}

// appendText appends a string of printable ASCII in which JSON, as json.Marshal writes it,
// escapes nothing; false for another.
func appendText(to []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return to, false
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"'), true
}

func appendTexts(to []byte, all []string) (_ []byte, plain bool) {
	if all == nil {
		return append(to, "null"...), true
	}
	to = append(to, '[')
	for i, s := range all {
		if i > 0 {
			to = append(to, ',')
		}
		if to, plain = appendText(to, s); !plain {
			return to, false
		}
	}
	return append(to, ']'), true
}
