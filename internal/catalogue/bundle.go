package catalogue

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
)

// leastSize is a number of bytes that a value has as JSON at least. It stops counting beyond most.
func leastSize(v any, most int) int {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case json.Number:
		return len(v)
	case []any:
		n := 1 + max(1, len(v)) // brackets and commas
		for _, one := range v {
			if n > most {
				break
			}
			n += leastSize(one, most-n)
		}
		return n
	case map[string]any:
		n := 1 + max(1, len(v))
		for name, one := range v {
			if n > most {
				break
			}
			n += len(name) + 3 + leastSize(one, most-n)
		}
		return n
	}
	return 4
}

// bundle is a schema with the components that it refers to in its $defs.
func (r *documentReader) bundle(at string, schema any) []byte {
	b := bundler{document: r, at: at, left: maxBundle, bytes: MaxSchema, defs: map[string]any{}}
	if given, ok := schema.(map[string]any); ok {
		if id, _ := given["$id"].(string); strings.HasPrefix(id, exportedID) {
			given = maps.Clone(given)
			delete(given, "$id")
			schema = given
		}
	}
	b.components, _ = r.follow(map[string]any{"$ref": strings.TrimSuffix(components, "/")}).(map[string]any)
	root, ok := b.rewrite(schema).(map[string]any)
	for len(b.wanted) > 0 && !b.failed {
		name := b.wanted[0]
		b.wanted = b.wanted[1:]
		b.defs[name] = b.rewrite(b.components[name])
	}
	switch {
	case b.failed:
		r.refuse(at, "has a schema that is too large with all that it refers to")
		return nil
	case !ok:
		r.refuse(at, "has a schema that is not an object")
		return nil
	}
	if len(b.defs) > 0 {
		own, _ := root["$defs"].(map[string]any)
		for name := range own {
			if _, twice := b.defs[name]; twice {
				r.refuse(at, "has $defs of the same name as a component: "+cut(name, maxShownPointer))
			}
		}
		maps.Copy(b.defs, own)
		root["$defs"] = b.defs
	}
	text, err := json.Marshal(root)
	if err != nil {
		r.refuse(at, "has a schema that is not JSON")
	}
	return text
}

// bundler rewrites the references of one schema.
type bundler struct {
	document   *documentReader
	at         string
	components map[string]any
	defs       map[string]any
	wanted     []string
	left       int // values
	bytes      int // that the schema may still have
	failed     bool
}

// spend counts bytes. It reports whether the schema may have them.
func (b *bundler) spend(n int) bool {
	b.bytes -= n
	b.document.bytes -= n
	b.failed = b.failed || b.bytes < 0 || b.document.bytes < 0
	return !b.failed
}

// rewrite copies a schema. What is data in it stays as it is.
func (b *bundler) rewrite(v any) any {
	b.left--
	b.document.left--
	b.failed = b.failed || b.left < 0 || b.document.left < 0
	if b.failed {
		return nil
	}
	switch v := v.(type) {
	case []any:
		if !b.spend(1 + max(1, len(v))) {
			return nil
		}
		all := make([]any, len(v))
		for i, one := range v {
			if all[i] = b.rewrite(one); b.failed {
				return nil
			}
		}
		return all
	case map[string]any:
		if !b.spend(1 + max(1, len(v))) {
			return nil
		}
		object := make(map[string]any, len(v))
		for name, one := range v {
			if !b.spend(len(name) + 3) {
				return nil
			}
			switch name {
			case "example", "examples", "const", "enum", "default":
				b.spend(leastSize(one, b.bytes))
				object[name] = one
			case "$ref":
				object[name] = b.reference(one)
			case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
				object[name] = b.rewriteEach(one)
			default:
				object[name] = b.rewrite(one)
			}
		}
		return object
	}
	b.spend(leastSize(v, b.bytes))
	return v
}

// rewriteEach rewrites the schemas of a map, whose names say nothing.
func (b *bundler) rewriteEach(v any) any {
	named, ok := v.(map[string]any)
	if !ok {
		return b.rewrite(v)
	}
	if !b.spend(1 + max(1, len(named))) {
		return nil
	}
	object := make(map[string]any, len(named))
	for name, one := range named {
		if !b.spend(len(name) + 3) {
			return nil
		}
		object[name] = b.rewrite(one)
	}
	return object
}

// reference is a reference as it is in the bundle.
func (b *bundler) reference(v any) any {
	ref, _ := v.(string)
	rest, ok := strings.CutPrefix(ref, components)
	if !ok {
		b.spend(leastSize(v, b.bytes))
		return v
	}
	if !b.spend(len(ref) - len(components) + len("#/$defs/")) {
		return nil
	}
	name, path, deeper := strings.Cut(rest, "/")
	plain := jsonref.Name(name)
	if _, there := b.components[plain]; !there {
		b.document.refuse(b.at, "refers to a component that does not exist: "+cut(plain, maxShownPointer))
		return v
	}
	if _, known := b.defs[plain]; !known {
		b.spend(len(plain) + 3)
		b.defs[plain] = nil
		b.wanted = append(b.wanted, plain)
	}
	if deeper {
		return "#/$defs/" + name + "/" + path
	}
	return "#/$defs/" + name
}
