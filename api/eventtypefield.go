package api

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	reservedTypes   = "must not begin with " + webhook.OperationalPrefix + ", in any case: these types are reserved"
	notATypeState   = `must be "active", "deprecated" or "archived"`
	notAValidation  = `must be "off", "warn" or "enforce"`
	notAJSONPointer = `must be a JSON pointer into the payload, such as "/order/id", of at most 256 bytes`
)

// eventTypeInput are the fields of a request, read and checked once, for whatever is stored.
type eventTypeInput struct {
	fields webhook.EventType
	named  []string
}

// apply sets the fields that the request names.
func (in *eventTypeInput) apply(t *webhook.EventType) {
	f := &in.fields
	for _, name := range in.named {
		switch name {
		case "description":
			t.Description = f.Description
		case "group":
			t.Group = f.Group
		case "state":
			t.State = f.State
		case "replaced_by":
			t.ReplacedBy = f.ReplacedBy
		case "validation":
			t.Validation = f.Validation
		case "ordering_key":
			t.OrderingKey = f.OrderingKey
		case "versions":
			t.Versions = f.Versions
		}
	}
}

// readEventTypeInput reads the body of a change of the named type.
func readEventTypeInput(c call, name string) (*eventTypeInput, error) {
	text, err := c.body()
	if err != nil {
		return nil, err
	}
	in := &eventTypeInput{fields: webhook.EventType{Name: name}}
	err = readObject(text, func(d *jsonDecoder, field string) { in.read(c.Request().Context(), d, field) })
	return in, err
}

func (in *eventTypeInput) read(ctx context.Context, d *jsonDecoder, name string) {
	t := &in.fields
	switch name {
	case "description":
		set(d, &t.Description, "", func(d *jsonDecoder) string {
			text := d.strMax(webhook.MaxEventTypeDescription)
			return text
		})
	case "group":
		set(d, &t.Group, "", func(d *jsonDecoder) string { return readLabel(d, webhook.MaxEventTypeGroup) })
	case "state":
		set(d, &t.State, webhook.EventTypeActive, func(d *jsonDecoder) webhook.EventTypeState {
			return readNamed(d, webhook.EventTypeStates(), notATypeState)
		})
	case "replaced_by":
		set(d, &t.ReplacedBy, "", func(d *jsonDecoder) string {
			other := readEventType(d)
			if other == t.Name {
				d.note("must be another type")
			}
			return other
		})
	case "validation":
		set(d, &t.Validation, webhook.ValidationOff, func(d *jsonDecoder) webhook.Validation {
			return readNamed(d, webhook.Validations(), notAValidation)
		})
	case "ordering_key":
		set(d, &t.OrderingKey, "", readJSONPointer)
	case "versions":
		set(d, &t.Versions, nil, func(d *jsonDecoder) []webhook.EventTypeVersion { return readTypeVersions(ctx, d) })
	case "name", "created_at", "updated_at": // as GET shows them
		d.skip()
		return
	default:
		d.unknown()
		return
	}
	in.named = append(in.named, name)
}

// readNamed reads the name of one of several values.
func readNamed[T interface{ String() string }](d *jsonDecoder, all []T, message string) (found T) {
	name, ok := d.str()
	if !ok {
		return found
	}
	i := slices.IndexFunc(all, func(one T) bool { return one.String() == name })
	if i < 0 {
		d.note(message)
		return found
	}
	return all[i]
}

// readJSONPointer reads a pointer to a value within a payload (RFC 6901).
func readJSONPointer(d *jsonDecoder) string {
	text, ok := d.str()
	if !ok {
		return ""
	}
	rest := strings.NewReplacer("~0", "", "~1", "").Replace(text)
	if len(text) > webhook.MaxOrderingPointer || !strings.HasPrefix(text, "/") || strings.Contains(rest, "~") || !printable(text, webhook.MaxOrderingPointer) {
		d.note(notAJSONPointer)
		return ""
	}
	return text
}

func readTypeVersions(ctx context.Context, d *jsonDecoder) []webhook.EventTypeVersion {
	versions := []webhook.EventTypeVersion{}
	size := 0
	d.array(func(i int) {
		if i == webhook.MaxEventTypeVersions {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxEventTypeVersions) + " entries")
		}
		if i >= webhook.MaxEventTypeVersions {
			d.skip()
			return
		}
		v := readTypeVersion(ctx, d)
		if v.Version != 0 && slices.ContainsFunc(versions, func(o webhook.EventTypeVersion) bool { return o.Version == v.Version }) {
			d.noteIn("version", "is listed more than once")
		}
		size += len(v.Schema)
		for _, example := range v.Examples {
			size += len(example)
		}
		versions = append(versions, v)
	})
	if size > webhook.MaxEventTypeSize {
		d.note("has more than " + megabytes(webhook.MaxEventTypeSize) + " of schemas and examples")
	}
	slices.SortFunc(versions, func(a, b webhook.EventTypeVersion) int { return a.Version - b.Version })
	return versions
}

// readTypeVersion reads a version. It copies schema and examples, which are kept longer than the body.
func readTypeVersion(ctx context.Context, d *jsonDecoder) (v webhook.EventTypeVersion) {
	d.object(func(name []byte) {
		switch string(name) {
		case "version":
			v.Version = d.integer(1, webhook.MaxEventTypeVersion)
		case "schema":
			if !d.null() {
				v.Schema = bytes.Clone(d.raw())
			}
		case "examples":
			if !d.null() {
				v.Examples = readExamples(d)
			}
		default:
			d.unknown()
		}
	}, "version")
	if v.Schema != nil && !d.broken && len(d.errs) < maxFieldErrors {
		checkVersion(ctx, d, &v)
	}
	return v
}

func readExamples(d *jsonDecoder) (examples [][]byte) {
	d.array(func(i int) {
		if i == webhook.MaxEventTypeExamples {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxEventTypeExamples) + " entries")
		}
		if i >= webhook.MaxEventTypeExamples {
			d.skip()
			return
		}
		example := d.payload()
		if len(example) > webhook.MaxEventTypeExample {
			d.note("is larger than " + strconv.Itoa(webhook.MaxEventTypeExample) + " bytes")
			return
		}
		examples = append(examples, bytes.Clone(example))
	})
	return examples
}

// checkVersion notes what is wrong with a schema, and with the examples by the schema. Customers get the examples.
func checkVersion(ctx context.Context, d *jsonDecoder, v *webhook.EventTypeVersion) {
	if !utf8.Valid(v.Schema) {
		return // noted by the decoder
	}
	schema, err := catalogue.Compile(v.Schema)
	if err != nil {
		d.noteIn("schema", err.Error())
		return
	}
	for i, example := range v.Examples {
		found, err := schema.Validate(ctx, example)
		if err == nil && len(found) > 0 {
			d.noteIn("examples["+strconv.Itoa(i)+"]", "does not match the schema: "+found[0].String())
		}
	}
}
