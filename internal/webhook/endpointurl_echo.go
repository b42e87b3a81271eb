package webhook

import (
	"net/url"
	"strings"
)

// minEchoedSegment is from how many bytes on a segment of a URL's path is taken for a
// token: shorter ones are words, like "hooks", that an answer holds by chance.
const minEchoedSegment = 16

// EchoesOfURL are the secrets that an endpoint's URL may hold, in the spellings that a
// receiver may repeat them in, in the Location of a redirect above all: the query, the
// values in it (a short one with its name, a name without a value as if it were one),
// and the long segments of the path. What else there is of the URL may stay.
func EchoesOfURL(raw string) Echoes {
	u, err := url.Parse(raw)
	if err != nil {
		return nil // nothing is sent there
	}
	var found Echoes
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err == nil && len(plain) >= minEchoedSegment {
			found = found.add(minEchoedSegment, respelled(segment, plain)...)
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
		found = found.add(minEchoedHeader, respelled(value, plain)...)
	}
	return found.sorted()
}

// respelled is a part of a URL as it stands there, without escapes, and as others would
// escape it.
func respelled(escaped, plain string) []string {
	all := []string{escaped, plain, url.QueryEscape(plain), url.PathEscape(plain)}
	for _, text := range all {
		all = append(all, withLowerEscapes(text))
	}
	return all
}

// withLowerEscapes spells %2F as %2f.
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
