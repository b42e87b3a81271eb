package catalogue

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pattern is a regular expression whose matches count as steps: the time that RE2 takes is bounded by the length of the text times the size
// of the expression.
type pattern struct {
	*regexp.Regexp

	size   int
	budget *budget
}

// MatchString implements jsonschema.Regexp.
func (p *pattern) MatchString(text string) bool {
	p.budget.spend(1 + len(text)*p.size/64)
	return p.Regexp.MatchString(text)
}

// patterns compiles the patterns of one schema.
type patterns struct {
	budget *budget
	size   int  // of all so far
	sealed bool // the schema is compiled: further patterns are texts of a payload, which must have the format regex
}

// compile implements jsonschema.RegexpEngine.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	size, err := patternSize(text)
	if err != nil {
		return nil, err
	}
	if p.size += size; p.size > maxPatternsSize && !p.sealed {
		return nil, fmt.Errorf("the patterns of the schema are too large together: their repetitions make more than %d steps", maxPatternsSize)
	}
	p.budget.spend(size)
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err //nolint:wrapcheck // never: it was parsed
	}
	return &pattern{compiled, size, p.budget}, nil
}

// patternSize is about the number of instructions of a pattern. It is computed before the pattern is compiled, which takes memory for
// each of them.
func patternSize(text string) (int, error) {
	if len(text) > maxPattern {
		return 0, fmt.Errorf("the pattern is longer than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the pattern is not one of RE2: %s", patternProblem(err))
	}
	size := sizeOf(parsed)
	if size > maxPatternSize {
		return 0, fmt.Errorf("the pattern is too large: its repetitions make more than %d steps", maxPatternSize)
	}
	return size, nil
}

func patternProblem(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return string(e.Code)
	}
	return "it cannot be parsed"
}

func sizeOf(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)/2 //nolint:mnd // pairs of a class; a literal has a step for each, at most twice as many
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(1, re.Min, re.Max)
	}
	return min(size, maxPatternSize+1)
}
