package webhook

import (
	"net/url"
	"strings"
)

// minEchoedSegment is the length in bytes from which a path segment counts as a token.
// Shorter segments are words such as "hooks", which match by chance.
const minEchoedSegment = 16

// EchoesOfURL returns the secrets in an endpoint's URL, in the spellings in which a receiver
// may repeat them, for example in a redirect's Location: the query, the query's values (a
// short one only with its name), and the long path segments.
func EchoesOfURL(raw string) Echoes {
	u, err := url.Parse(raw)
	if err != nil {
		return nil // no request is sent to an invalid URL
	}
	var found Echoes
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err == nil && len(plain) >= minEchoedSegment {
			found = found.add(minEchoedSegment, spellings(segment, plain)...)
		}
	}
	found = found.add(minEchoedHeader, u.RawQuery)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		value := pair
		if _, after, ok := strings.Cut(pair, "="); ok && len(after) >= minEchoedHeader {
			value = after
		}
		plain, err := url.QueryUnescape(value)
		if err != nil {
			plain = value
		}
		found = found.add(minEchoedHeader, spellings(value, plain)...)
	}
	return found.sorted()
}

// spellings returns a part of a URL as it is written there, without escapes, and with the
// escapes of other encoders.
func spellings(escaped, plain string) []string {
	all := []string{escaped, plain, url.QueryEscape(plain), url.PathEscape(plain)}
	for _, text := range all {
		all = append(all, withLowerEscapes(text))
	}
	return all
}

// withLowerEscapes converts escapes to lower case: %2F to %2f.
func withLowerEscapes(text string) string {
	var b strings.Builder
	for rest := text; ; {
		before, after, ok := strings.Cut(rest, "%")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		n := min(2, len(after))
		b.WriteString("%" + strings.ToLower(after[:n]))
		rest = after[n:]
	}
}
