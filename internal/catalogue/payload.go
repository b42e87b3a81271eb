package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errLibrary = errors.New("the schema cannot be applied to it")

// problemInWords is why a validation ended without a result.
func problemInWords(err error) string {
	if errors.Is(err, errWork) {
		return "it takes too much work"
	}
	return errLibrary.Error()
}

// decoded is a JSON value that was read, with how deep it is nested.
type decoded struct {
	value any
	depth int
}

// unfit is a value that cannot be compared.
type unfit struct {
	path    []string
	message string
}

// readPayload decodes a payload, of repeated names the last one. The caller has checked that it is JSON.
func readPayload(text []byte) (decoded, *unfit) {
	value, err := decode(text)
	if err != nil {
		return decoded{}, &unfit{message: "is not JSON"}
	}
	w := numberWalk{}
	w.walk(value)
	return decoded{value, w.deepest}, w.found
}

func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if d.More() {
		return nil, errors.New("decode: there is data after the JSON value")
	}
	return value, nil
}

// numberWalk looks for a number that would be expensive to compare: the library computes with fractions of any size, and 1e999999 has a million
// digits.
type numberWalk struct {
	path    []string
	deepest int
	found   *unfit
}

func (w *numberWalk) walk(v any) {
	w.deepest = max(w.deepest, len(w.path))
	switch v := v.(type) {
	case json.Number:
		if w.found == nil && !isComparable(string(v)) {
			w.found = &unfit{
				append([]string(nil), w.path...),
				fmt.Sprintf("is a number of more than %d characters, or with an exponent above %d", maxNumber, maxExponent),
			}
		}
	case []any:
		for i, item := range v {
			w.into(strconv.Itoa(i), item)
		}
	case map[string]any:
		for name, item := range v {
			w.into(name, item)
		}
	}
}

func (w *numberWalk) into(name string, v any) {
	if w.found != nil {
		return
	}
	w.path = append(w.path, name)
	w.walk(v)
	w.path = w.path[:len(w.path)-1]
}

func isComparable(number string) bool {
	if len(number) > maxNumber {
		return false
	}
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return true
	}
	exponent, err := strconv.Atoi(number[i+1:])
	return err == nil && -maxExponent <= exponent && exponent <= maxExponent
}
