package catalogue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxDocumentNodes = 2_000_000 // values of schemas that an import looks at, references followed
	maxDocumentBytes = 32 << 20  // of all schemas, examples and descriptions of an import, references followed
	maxBundle        = 20_000    // values of one schema with what it refers to

	components = "#/components/schemas/"
	exportedID = "urn:everpost:event-type:"
)

// Problem is what is wrong with a part of a document.
type Problem struct {
	Path    string // dotted, within the document
	Message string
}

// FromOpenAPI reads the event types of an OpenAPI 3.1 document: one for each of its webhooks, with the schema and the examples of the JSON body of its
// POST. What a schema refers to in components comes into its $defs. The first tag is the group. warnings are about examples that are left out;
// problems are what makes the document unusable.
func FromOpenAPI(text []byte) (types []webhook.ImportedType, warnings, problems []Problem) {
	doc, err := decode(text)
	root, _ := doc.(map[string]any)
	if version, _ := root["openapi"].(string); err != nil || !strings.HasPrefix(version, "3.1") {
		return nil, nil, []Problem{{"openapi", `must be "3.1.0" or another 3.1`}}
	}
	all, _ := root["webhooks"].(map[string]any)
	if len(all) == 0 {
		return nil, nil, []Problem{{"webhooks", "must have at least one"}}
	}
	r := documentReader{root: root, left: maxDocumentNodes, bytes: maxDocumentBytes}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(types) == webhook.MaxCatalogueTypes {
			r.refuse("webhooks", fmt.Sprintf("has more than %d entries", webhook.MaxCatalogueTypes))
			break
		}
		types = append(types, r.webhook(name, all[name]))
		if r.left < 0 || r.bytes < 0 {
			r.refuse("webhooks", "have schemas, examples and descriptions that are too large together, references followed")
			break
		}
	}
	return types, r.warnings, r.problems
}

// documentReader reads one document.
type documentReader struct {
	root               map[string]any
	left, bytes        int // values and bytes that there may still be; below 0: there are more
	warnings, problems []Problem
}

const maxProblems = 50 // of a document

func (r *documentReader) refuse(path, message string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{cut(path, maxShownPointer), message})
	}
}

func (r *documentReader) warn(path, message string) {
	if len(r.warnings) < maxProblems {
		r.warnings = append(r.warnings, Problem{cut(path, maxShownPointer), message})
	}
}

func (r *documentReader) webhook(name string, item any) webhook.ImportedType {
	at := "webhooks." + name
	object, _ := r.follow(item).(map[string]any)
	post, ok := object["post"].(map[string]any)
	if !ok {
		r.refuse(at, "has no post")
	}
	t := webhook.ImportedType{Name: name, Description: firstText(post["description"], post["summary"], object["description"], object["summary"])}
	if deprecated, given := post["deprecated"].(bool); given {
		t.Deprecated = &deprecated
	}
	if tags := list(post["tags"]); len(tags) > 0 {
		t.Group, _ = tags[0].(string)
	}
	r.bytes -= len(t.Description) + len(t.Group)
	body, _ := r.follow(post["requestBody"]).(map[string]any)
	content, _ := body["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	if media == nil {
		return t // a type without a schema
	}
	if schema, given := media["schema"]; given {
		t.Schema = r.bundle(at+".post.requestBody", schema)
	}
	t.Examples = r.examples(at, media)
	return t
}

// follow returns what a reference within the document leads to, or the value itself.
func (r *documentReader) follow(v any) any {
	object, _ := v.(map[string]any)
	ref, _ := object["$ref"].(string)
	if !strings.HasPrefix(ref, "#/") {
		return v
	}
	if r.bytes -= len(ref); r.bytes < 0 {
		return nil
	}
	return jsonref.Find(r.root, ref)
}

func firstText(all ...any) string {
	for _, one := range all {
		if text, ok := one.(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// examples are those that fit, as many as there may be.
func (r *documentReader) examples(at string, media map[string]any) (examples [][]byte) {
	complete := true
	add := func(value any) {
		size := leastSize(value, webhook.MaxEventTypeExample)
		r.bytes -= min(size, webhook.MaxEventTypeExample)
		if size > webhook.MaxEventTypeExample {
			complete = false
			return
		}
		text, err := json.Marshal(value)
		if err != nil || len(text) > webhook.MaxEventTypeExample {
			complete = false
			return
		}
		examples = append(examples, text)
	}
	if one, given := media["example"]; given {
		add(one)
	}
	named, _ := media["examples"].(map[string]any)
	if r.left -= len(named); r.left < 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if len(examples) == webhook.MaxEventTypeExamples || r.bytes < 0 {
			complete = false
			break
		}
		if one, ok := r.follow(named[name]).(map[string]any); ok && one["value"] != nil {
			add(one["value"])
		}
	}
	if !complete {
		r.warn(at, "has an example that is too large, or more than there may be: it is left out")
	}
	return examples
}

// ToOpenAPI is an OpenAPI 3.1 document with a webhook for each type: the schema and the examples of its newest version.
func ToOpenAPI(types []webhook.EventType) ([]byte, error) {
	hooks := map[string]any{}
	for i := range types {
		t := &types[i]
		post := map[string]any{"responses": map[string]any{"2XX": map[string]any{"description": "The event was received."}}}
		if t.Description != "" {
			post["description"] = t.Description
		}
		if t.Group != "" {
			post["tags"] = []string{t.Group}
		}
		if t.State != webhook.EventTypeActive {
			post["deprecated"] = true
		}
		if v := t.Version(0); v != nil {
			post["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": mediaOf(t.Name, v)}}
		}
		hooks[t.Name] = map[string]any{"post": post}
	}
	text, err := json.Marshal(map[string]any{
		"openapi": "3.1.0", "info": map[string]any{"title": "Webhooks", "version": "1"}, "webhooks": hooks,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the document: %w", err)
	}
	return text, nil
}

// mediaOf is the body of a webhook. An id makes the schema a resource of its own, so that its references lead to its own parts.
func mediaOf(name string, v *webhook.EventTypeVersion) map[string]any {
	media := map[string]any{}
	if doc, err := decode(v.Schema); err == nil {
		schema, _ := doc.(map[string]any)
		if _, named := schema["$id"]; !named && schema != nil {
			schema["$id"] = fmt.Sprintf("%s%s:%d", exportedID, name, v.Version)
		}
		media["schema"] = schema
	}
	examples := map[string]any{}
	for i, example := range v.Examples {
		examples[fmt.Sprintf("example%d", i+1)] = map[string]any{"value": json.RawMessage(example)}
	}
	if len(examples) > 0 {
		media["examples"] = examples
	}
	return media
}

// Same reports whether two JSON texts have the same value; nil is the same as nil only.
func Same(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && equal(x, y)
}
