package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	problemMedia = "application/problem+json"
	linesMedia   = "application/x-ndjson" // each line has the schema
)

// Answer is a response, with the method and path of its request.
type Answer struct {
	Method, Path string // of the request; the escaped path as sent, without its query
	Status       int
	Header       http.Header
	Body         []byte
}

// Check returns nil when the document permits the response: its status is one of the
// operation's, its media type is that status's, and body and headers match their schemas. A
// request that matches no operation must get a problem document.
func (d *Document) Check(a Answer) error {
	if err := checkEverywhere(a); err != nil {
		return a.says(err)
	}
	o, known := d.Find(a.Method, a.Path)
	if !known {
		return a.says(d.checkUnknown(a))
	}
	place := append(slices.Clone(o.place), "responses", strconv.Itoa(a.Status))
	if d.At(place...) == nil {
		place[len(place)-1] = "default"
	}
	if d.At(place...) == nil {
		return a.says(fmt.Errorf("%s is not documented to answer with this status", o.ID))
	}
	if err := d.checkHeaders(a, place); err != nil {
		return a.says(err)
	}
	return a.says(d.checkBody(a, place))
}

// says adds the response, with a shortened body, to an error; nil stays nil.
func (a Answer) says(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("contract: %s %s: answer %d %.2048q: %w", a.Method, a.Path, a.Status, a.Body, err)
}

// checkEverywhere checks the rules for every response.
func checkEverywhere(a Answer) error {
	switch {
	case a.Header.Get("X-Request-Id") == "":
		return errors.New("there is no X-Request-Id")
	case a.Header.Get("X-Content-Type-Options") != "nosniff":
		return errors.New("there is no X-Content-Type-Options: nosniff")
	}
	for name := range a.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			return errors.New("CORS is off, and there is " + name)
		}
	}
	return nil
}

// checkUnknown checks the response to a request that matches no operation: 404, or 405
// where the path has other methods. OPTIONS lists those.
func (d *Document) checkUnknown(a Answer) error {
	want := http.StatusNotFound
	for _, o := range d.operations {
		if o.matches(a.Path) {
			want = http.StatusMethodNotAllowed
		}
	}
	if want == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "" {
		return errors.New("there is no Allow")
	}
	if a.Method == http.MethodOptions && want == http.StatusMethodNotAllowed && a.Status == http.StatusNoContent {
		return nil
	}
	if a.Status != want {
		return fmt.Errorf("no operation takes this: the status must be %d", want)
	}
	return d.checkMedia(a, []string{"components", "schemas", "Problem"}, problemMedia)
}

func (d *Document) checkBody(a Answer, place []string) error {
	content, _ := d.At(append(slices.Clone(place), "content")...).(map[string]any)
	if content == nil {
		if len(a.Body) > 0 {
			return errors.New("there must be no body")
		}
		return nil
	}
	media := a.Header.Get("Content-Type")
	if content[media] == nil {
		return fmt.Errorf("the media type is %q, not one of %q", media, slices.Sorted(maps.Keys(content)))
	}
	return d.checkMedia(a, append(slices.Clone(place), "content", media, "schema"), media)
}

func (d *Document) checkMedia(a Answer, schemaAt []string, media string) error {
	if got := a.Header.Get("Content-Type"); got != media {
		return fmt.Errorf("the media type is %q, not %q", got, media)
	}
	if a.Method == http.MethodHead || !strings.Contains(media, "json") {
		return nil
	}
	if media != linesMedia {
		return d.CheckJSON(a.Body, schemaAt...)
	}
	for line := range bytes.Lines(a.Body) {
		if err := d.CheckJSON(line, schemaAt...); err != nil {
			return err
		}
	}
	return nil
}

// CheckJSON validates a JSON text against the schema at a place.
func (d *Document) CheckJSON(text []byte, place ...string) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return d.CheckValue(value, place...)
}

// CheckValue validates a value of jsonschema.UnmarshalJSON against the schema at a place.
func (d *Document) CheckValue(value any, place ...string) error {
	schema, err := d.Schema(place...)
	if err != nil {
		return err
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("against %s: %w", d.pointer(place), err)
	}
	return nil
}

// checkHeaders validates the headers that are documented at a place.
func (d *Document) checkHeaders(a Answer, place []string) error {
	headers, _ := d.At(append(slices.Clone(place), "headers")...).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := append(slices.Clone(place), "headers", name)
		text := a.Header.Get(name)
		if text == "" {
			if required, _ := d.At(append(at, "required")...).(bool); required {
				return errors.New("there is no " + name)
			}
			continue
		}
		var value any = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && d.At(append(at, "schema", "type")...) == "integer" {
			value = n
		}
		if err := d.CheckValue(value, append(at, "schema")...); err != nil {
			return fmt.Errorf("%s is %q: %w", name, text, err)
		}
	}
	return nil
}
