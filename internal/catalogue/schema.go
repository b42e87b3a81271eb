package catalogue

import (
	"context"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	text []byte
	made atomic.Int32
	free chan *checker
}

// Compile compiles a schema: a JSON object of JSON Schema 2020-12, or of draft-07 if its $schema says so. The caller has checked that it is
// JSON, and does not change the text. The error is a *SchemaError.
func Compile(text []byte) (*Schema, error) {
	first, err := newChecker(text)
	if err != nil {
		return nil, err
	}
	s := &Schema{text: text, free: make(chan *checker, MaxCheckers)}
	s.made.Store(1)
	s.free <- first
	return s, nil
}

// Text is the schema's text.
func (s *Schema) Text() []byte { return s.text }

// Validate returns in which ways a payload does not match, MaxMismatches at most, in the order of their pointers; none if it matches. A payload
// that takes more work than is allowed, or has a number too large to be compared, does not match. At most MaxCheckers validations run at a
// time; an error is that of the context, while it waits.
func (s *Schema) Validate(ctx context.Context, payload []byte) ([]Mismatch, error) {
	c, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { s.free <- c }()
	return c.validate(payload), nil
}

func (s *Schema) take(ctx context.Context) (*checker, error) {
	select {
	case c := <-s.free:
		return c, nil
	default:
	}
	if s.made.Add(1) <= MaxCheckers {
		c, err := newChecker(s.text)
		if err == nil {
			return c, nil
		}
	}
	s.made.Add(-1)
	select {
	case c := <-s.free:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// checker is a compiled schema for one validation at a time, because the budget is a part of it.
type checker struct {
	budget *budget
	root   *jsonschema.Schema
	// not is the negation of root: it finds out whether a payload matches without making errors, which would take memory for each.
	not   *jsonschema.Schema
	names map[string]struct{} // of properties, in the schema
}

// validate is Schema.Validate.
func (c *checker) validate(payload []byte) []Mismatch {
	read, wrong := readPayload(payload)
	if wrong != nil {
		return []Mismatch{c.mismatch(wrong.path, wrong.message)}
	}
	c.budget.left, c.budget.factor = min(baseSteps+stepsPerByte*len(payload), mostSteps), 1
	if failed, err := run(c.not, read.value); err != nil {
		return []Mismatch{{Message: "cannot be checked: " + problemInWords(err)}}
	} else if failed != nil { // its negation does not match
		return nil
	}
	// An error holds its path: a step counts more in a deep payload.
	c.budget.left, c.budget.factor = describeSteps, 1+read.depth/8
	failed, err := run(c.root, read.value)
	if err != nil || failed == nil {
		return []Mismatch{{Message: "does not match the schema; it is too large for a list of what is wrong"}}
	}
	return c.describe(failed)
}

// run validates a value. err is errWork, or a panic of the library.
func run(s *jsonschema.Schema, value any) (failed *jsonschema.ValidationError, err error) {
	defer func() { err = recovered(recover(), err) }()
	failed, _ = s.Validate(value).(*jsonschema.ValidationError) //nolint:errorlint // it returns no other error
	return failed, nil
}

// recovered is the error of a panic. The library panics on a few schemas and values that it does not expect: that is a result, and not the end of
// the request.
func recovered(panicked any, err error) error {
	switch panicked := panicked.(type) {
	case nil:
		return err
	case error:
		return panicked
	}
	return errLibrary
}
