package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/explain"
)

// visible makes a stored text safe to look at: what would hide, reorder or fake text is written out. The
// template escapes it for HTML afterwards. Line breaks and tabs stay.
func visible(text string) string {
	if !strings.ContainsFunc(text, odd) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r < ' ' && r != '\n' && r != '\t':
			b.WriteRune('␀' + r) // U+2400: control pictures
		case odd(r):
			fmt.Fprintf(&b, "[U+%04X]", r)
		default:
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

// odd reports whether a character is not seen as itself: controls, and those that only format, as
// bidirectional overrides and zero-width characters do.
func odd(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs))
}

// pretty indents JSON; ok is false for anything else.
func pretty(text string) (indented string, ok bool) {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text, false
	}
	return b.String(), true
}

// instant is a time for people.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func instant(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// milliseconds is a duration for people; "–" if it is not known.
func milliseconds(ms *int64) string {
	if ms == nil {
		return "–"
	}
	return chart.Span(time.Duration(*ms) * time.Millisecond)
}

// percent is a share for people; "–" if it is not known. It says 100 % only of all.
func percent(share *float64) string {
	switch {
	case share == nil:
		return "–"
	case *share < 1 && *share > 0.999:
		return "99.9 %"
	case *share > 0 && *share < 0.001:
		return "0.1 %"
	}
	return strings.TrimSuffix(strconv.FormatFloat(*share*100, 'f', 1, 64), ".0") + " %"
}

// rateWords is a rate for people: to a tenth below 10, else whole.
func rateWords(of any) (string, error) {
	var f float64
	switch v := of.(type) {
	case float64:
		f = v
	case *float64:
		f = *v
	default:
		return "", fmt.Errorf("rate: %T is no number", of)
	}
	if f < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0"), nil
	}
	return count(int64(f)), nil
}

// countAny is count for templates, which have no type parameters.
func countAny(n any) (string, error) {
	switch v := n.(type) {
	case int:
		return count(int64(v)), nil
	case int64:
		return count(v), nil
	}
	return "", fmt.Errorf("count: %T is no whole number", n)
}

// count is a number with thousands apart.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// counted is a number with its noun: "1 delivery", "2,000 deliveries".
func counted(n any, noun string) (string, error) {
	var number int64
	switch v := n.(type) {
	case int:
		number = int64(v)
	case int64:
		number = v
	default:
		return "", fmt.Errorf("many: %T is no whole number", n)
	}
	return count(number) + " " + explain.Plural(number, noun), nil
}

func many(n int, noun string) string { return count(int64(n)) + " " + explain.Plural(int64(n), noun) }

// Lengths of the parts of a URL between which a browser may break it.
const (
	shortestPart = 9  // longer than https://
	longestPart  = 24 // a part without a separator is broken, so that no column gets wider
	shortestRest = 4  // no letter stands alone at the end
)

// breakable is a URL, or its beginning, that a browser breaks after a separator.
func breakable(text string, limit int) template.HTML {
	var b strings.Builder
	runes, part := []rune(clip(visible(text), limit)), 0
	for i, r := range runes {
		b.WriteString(template.HTMLEscapeString(string(r)))
		part++
		last := i+1 == len(runes)
		after := strings.ContainsRune("/.?&=-_,@", r) && part >= shortestPart && !last && runes[i+1] != '/' &&
			(r != '.' || !unicode.IsDigit(runes[i+1])) // not within an IP address
		if (after || part >= longestPart) && len(runes)-i > shortestRest {
			b.WriteString("<wbr>")
			part = 0
		}
	}
	return template.HTML(`<span class="url">` + b.String() + `</span>`) //nolint:gosec // every character is escaped
}

// nameOr is what people call an endpoint, of a limited length. A line can break in it if it is a URL.
func nameOr(description, address string) template.HTML {
	name := called(description, address)
	if called("", address) == name {
		return breakable(name, maxShownName)
	}
	return template.HTML(template.HTMLEscapeString(clip(visible(name), maxShownName))) //nolint:gosec // it is escaped
}

const maxShownName = 80

// hostOf is the host of a URL, with its port if it has one; "" if it has none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// words is a name of the API as words: half_open is "half open". A delivery that is dead_lettered is a dead letter.
func words(name string) string {
	if name == string(client.DeliveryDeadLettered) {
		return "dead letter"
	}
	return strings.ReplaceAll(name, "_", " ")
}

// value is what a pointer points at, "" for nil.
func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// textOf is a text of a template: of a type that names its values, or optional.
func textOf(v any) string {
	if optional, ok := v.(*string); ok {
		return value(optional)
	}
	return fmt.Sprint(v)
}

// timeOf is a time of a template.
func timeOf(v any) time.Time {
	if t, ok := v.(client.Time); ok {
		return t.Time
	}
	t, _ := v.(time.Time)
	return t
}

// jsonOf is a value of the API as it shows it.
func jsonOf(v any) string {
	text, _ := json.Marshal(v) //nolint:errchkjson // numbers and texts
	return string(text)
}

// letterWords is a number of dead letters in words.
func letterWords(n int64, more bool) string {
	if more {
		return "more than " + count(n) + " dead letters"
	}
	return count(n) + " " + explain.Plural(n, "dead letter")
}

// clip shortens a text to a number of bytes, at a character's border.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
