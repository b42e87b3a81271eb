// Package openapitest checks requests and responses of tests against the OpenAPI 3.1
// document: its operations, schemas and examples, and a transport that checks every
// response.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// address identifies the document within the schema compiler.
const address = "https://everpost.dev/openapi.json"

// Document is an OpenAPI document. It is safe for concurrent use.
type Document struct {
	root       map[string]any
	operations []Operation

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// Operation is one method of one path.
type Operation struct {
	ID     string
	Method string // GET
	Path   string // /v1/tenants/{tenant}

	node  map[string]any
	place []string
}

// Parse reads a document, as YAML or JSON.
func Parse(text []byte) (*Document, error) {
	var parsed any
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	plain, err := json.Marshal(parsed)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("read the document: it is %T, not an object", value)
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(address, root); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	d.operations = d.findOperations()
	return d, nil
}

func (d *Document) findOperations() []Operation {
	var all []Operation
	paths, _ := d.At("paths").(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item, _ := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(item)) {
			node, ok := item[method].(map[string]any)
			if !ok {
				continue // parameters that all methods of the path share
			}
			id, _ := node["operationId"].(string)
			all = append(all, Operation{
				ID: id, Method: strings.ToUpper(method), Path: path, node: node, place: []string{"paths", path, method},
			})
		}
	}
	return all
}

// Operations returns all operations, ordered by path and method.
func (d *Document) Operations() []Operation { return slices.Clone(d.operations) }

// Find returns the operation of a request's path. Paths without parameters take precedence.
func (d *Document) Find(method, path string) (Operation, bool) {
	var found Operation
	ok := false
	for _, o := range d.operations {
		if o.Method == method && o.matches(path) && (!ok || strings.Count(o.Path, "{") < strings.Count(found.Path, "{")) {
			found, ok = o, true
		}
	}
	return found, ok
}

func (o Operation) matches(path string) bool {
	want, given := strings.Split(o.Path, "/"), strings.Split(path, "/")
	if len(want) != len(given) {
		return false
	}
	for i := range want {
		missing := given[i] == "" && i == len(want)-1 // elsewhere an empty id is malformed
		if want[i] != given[i] && (!strings.HasPrefix(want[i], "{") || missing) {
			return false
		}
	}
	return true
}

// At returns the node at a place of the document, nil when there is none. It follows
// references.
func (d *Document) At(path ...string) any { return d.from(d.root, path...) }

// In is At within an operation.
func (d *Document) In(o Operation, path ...string) any { return d.from(o.node, path...) }

// Of is At within a part of the document.
func (d *Document) Of(node any, path ...string) any { return d.from(node, path...) }

func (d *Document) from(node any, path ...string) any {
	for _, step := range path {
		m, _ := d.resolve(node).(map[string]any)
		node = m[step]
	}
	return d.resolve(node)
}

func (d *Document) resolve(node any) any {
	m, _ := node.(map[string]any)
	ref, ok := m["$ref"].(string)
	if !ok {
		return node
	}
	return d.At(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// Schema compiles the schema at a place. It follows references.
func (d *Document) Schema(path ...string) (*jsonschema.Schema, error) {
	pointer := d.pointer(path)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[pointer]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(address + "#" + pointer)
	if err != nil {
		return nil, fmt.Errorf("compile the schema at %s: %w", pointer, err)
	}
	d.compiled[pointer] = s
	return s, nil
}

// pointer returns the JSON pointer (RFC 6901) of a place as a URL fragment.
func (d *Document) pointer(path []string) string {
	var node any = d.root
	pointer := ""
	for _, step := range path {
		m, _ := node.(map[string]any)
		node = m[step]
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
		if m, ok := node.(map[string]any); ok {
			if ref, ok := m["$ref"].(string); ok {
				pointer, node = strings.TrimPrefix(ref, "#"), d.resolve(node)
			}
		}
	}
	return strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer)
}

// Examples visits the values of "example" and "examples" next to a schema, each with its
// place.
func (d *Document) Examples(visit func(place []string, example any)) {
	var walk func(node any, place []string)
	walk = func(node any, place []string) {
		m, ok := node.(map[string]any)
		if !ok {
			return
		}
		if example, ok := m["example"]; ok && m["schema"] != nil {
			visit(place, example)
		}
		if several, ok := m["examples"].(map[string]any); ok && m["schema"] != nil {
			for _, one := range several {
				visit(place, d.from(one, "value"))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			walk(m[name], append(slices.Clone(place), name))
		}
	}
	walk(d.root, nil)
}
