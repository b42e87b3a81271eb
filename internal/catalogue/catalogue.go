// Package catalogue checks payloads against the schemas of event types. It compiles JSON Schema 2020-12 and draft-07, bounds the work of a
// validation, compares the versions of a schema, and reads and writes OpenAPI documents. It is pure: what is stored is given to it.
//
// A schema comes from an operator and a payload from a tenant, and neither may cost more than a bounded amount: schemas are small, refer to
// nothing outside, and have no cycles that consume nothing; patterns are RE2 and small; and each step of a validation is counted.
package catalogue

import (
	"fmt"
	"strings"
	"unicode"
)

// Limits of a schema. docs/event-types.md documents them.
const (
	MaxSchema = 64 << 10 // bytes

	maxSchemas      = 2000   // objects and booleans in a schema: compiling takes time in the square of them
	maxSchemaDepth  = 128    // nested arrays and objects
	maxInPlace      = 64     // schemas in a row that apply to the same value
	maxPattern      = 1024   // bytes of a pattern
	maxPatternSize  = 2000   // instructions of its program
	maxPatternsSize = 40_000 // of all patterns of a schema
)

// Limits of a validation.
const (
	// MaxMismatches are the mismatches that Validate returns.
	MaxMismatches = 10

	baseSteps     = 100_000 // each is well below a microsecond
	stepsPerByte  = 4       // of the payload
	mostSteps     = 2_000_000
	describeSteps = 100_000 // for the list of mismatches, which takes memory; see budget
	maxNumber     = 100     // characters of a number: longer ones cost much to compare
	maxExponent   = 400     // of a number; that of the largest float64 is 308

	// MaxCheckers are the validations by one schema at a time.
	MaxCheckers = 4
)

// SchemaError is what is wrong with a schema.
type SchemaError struct {
	Pointer string // into the schema (RFC 6901); "" is the whole
	Message string
}

func (e *SchemaError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return "at " + e.Pointer + ": " + e.Message
}

func schemaError(pointer, format string, args ...any) error {
	return &SchemaError{Pointer: cut(pointer, maxShownPointer), Message: cut(fmt.Sprintf(format, args...), maxShownMessage)}
}

// Mismatch is one way in which a payload does not match its schema.
type Mismatch struct {
	// Pointer leads to the value in the payload (RFC 6901); "" is the whole payload.
	Pointer string
	// Known is Pointer with * for every name that is not in the schema: names may be personal data.
	Known string
	// Message is a clause without a value of the payload: "must be a string".
	Message string
}

// String is the mismatch without anything that only the payload has.
func (m Mismatch) String() string {
	if m.Known == "" {
		return "the payload " + m.Message
	}
	return m.Known + " " + m.Message
}

const (
	maxShownPointer = 200 // bytes
	maxShownMessage = 200
)

// cut shortens a text, between two runes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[:most-len("…")]
	for text != "" && text[len(text)-1]&0xc0 == 0x80 {
		text = text[:len(text)-1]
	}
	if text != "" && text[len(text)-1] >= 0xc0 {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// pointer is a JSON pointer of names. What is not printable is escaped as in JSON: a pointer is shown, and stored as text.
func pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteByte('/')
		for _, r := range name {
			switch {
			case r == '~':
				b.WriteString("~0")
			case r == '/':
				b.WriteString("~1")
			case unicode.IsPrint(r):
				b.WriteRune(r)
			case r > 0xffff:
				fmt.Fprintf(&b, `\U%08x`, r)
			default:
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		if b.Len() > maxShownPointer {
			break
		}
	}
	return cut(b.String(), maxShownPointer)
}
