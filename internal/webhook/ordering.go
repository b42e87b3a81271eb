package webhook

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OrderingBy is what the deliveries of an endpoint are numbered by.
type OrderingBy uint8

// The ways.
const (
	OrderingNone   OrderingBy = iota // they have no numbers
	OrderingNumber                   // each has the next number of its line, and none waits for another
)

// OrderingBys returns all ways.
func OrderingBys() []OrderingBy { return []OrderingBy{OrderingNone, OrderingNumber} }

// String is the way's name in the API.
func (o OrderingBy) String() string {
	switch o {
	case OrderingNone:
		return "none"
	case OrderingNumber:
		return "number"
	}
	return fmt.Sprintf("ordering(%d)", uint8(o))
}

// ParseOrderingBy parses a way's name.
func ParseOrderingBy(name string) (OrderingBy, bool) {
	at := slices.IndexFunc(OrderingBys(), func(o OrderingBy) bool { return o.String() == name })
	if at < 0 {
		return OrderingNone, false
	}
	return OrderingBys()[at], true
}

// Ordering is how the deliveries of an endpoint are ordered. The zero value is not at all.
type Ordering struct {
	By OrderingBy
}

// MaxOrderingKey bounds an event's ordering key, in characters.
const MaxOrderingKey = 128

// ValidOrderingKey reports whether k is an ordering key: 1 to MaxOrderingKey printable characters.
func ValidOrderingKey(k string) bool {
	return k != "" && utf8.ValidString(k) && utf8.RuneCountInString(k) <= MaxOrderingKey &&
		!strings.ContainsFunc(k, func(r rune) bool { return !unicode.IsPrint(r) })
}

// OrderingKeyHeader is an ordering key as the value of a header: the key itself if that is printable ASCII, else a display string of RFC 9651, as
// %"M%c3%bcller". A key that would be taken for such a string, or that has spaces at its ends, is written as one.
func OrderingKeyHeader(k string) string {
	plain := strings.TrimSpace(k) == k && !strings.HasPrefix(k, `%"`) && !strings.ContainsFunc(k, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return k
	}
	b := []byte(`%"`)
	for _, c := range []byte(k) {
		if c < ' ' || c > '~' || c == '%' || c == '"' {
			b = fmt.Appendf(b, "%%%02x", c)
		} else {
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

// Sequence is the place of a delivery in its line, which is what its endpoint gets with one ordering key. It is the same in all attempts and runs.
type Sequence struct {
	Key    string // of the event; "" for none
	Line   int64  // when the line began, in microseconds since 1970: numbers compare within a line only
	Number int64  // 1, 2, 3 and so on; 0: the delivery is not numbered
}

// maxPlace is the length of the longest place in an envelope: a key of characters of four bytes, and two numbers.
const maxPlace = len(`,"ordering":{"key":"","line":,"sequence":}`) + 4*MaxOrderingKey + 2*20

// appendJSON appends the place as an envelope has it: {"key":"order-17","line":1790000000000000,"sequence":3}. Without a key there is none.
func (s Sequence) appendJSON(b []byte) []byte {
	b = append(b, '{')
	if s.Key != "" {
		b = append(b, `"key":"`...)
		for _, c := range []byte(s.Key) { // it has no control characters
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		b = append(b, `",`...)
	}
	b = strconv.AppendInt(append(b, `"line":`...), s.Line, 10)
	b = strconv.AppendInt(append(b, `,"sequence":`...), s.Number, 10)
	return append(b, '}')
}

// IsZero reports that the delivery is not numbered.
func (s Sequence) IsZero() bool { return s.Number == 0 }
