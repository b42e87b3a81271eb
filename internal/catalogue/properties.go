package catalogue

import (
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
)

// maxLooked bounds the schemas that a Properties looks at. What it has no steps left for may exist.
const maxLooked = 200_000

// Properties knows which properties the payloads of some event types can have, as far as properties, items, $ref, allOf, anyOf, oneOf and
// conditions of their schemas say. It is not safe for concurrent use.
type Properties struct {
	roots []map[string]any
	steps int
	known map[string][]level
}

// level is what a schema says of the values at a path.
type level struct {
	schemas []map[string]any // that apply to them
	open    bool             // they may be anything
	missing bool             // there is no such property
}

// NewProperties reads the schemas of the types, each a JSON object.
func NewProperties(schemas [][]byte) *Properties {
	p := &Properties{known: map[string][]level{}}
	for _, text := range schemas {
		doc, _ := decode(text)
		root, _ := doc.(map[string]any) // nil: one that says nothing
		p.roots = append(p.roots, root)
	}
	return p
}

// Lack reports whether no schema lists the property that the last name of a path is, although some list those before it. Elements of arrays have no
// name. False if a schema leaves open what there is.
func (p *Properties) Lack(path []string) bool {
	return len(path) > 0 && allMissing(p.at(path)) && !allMissing(p.at(path[:len(path)-1]))
}

func allMissing(levels []level) bool {
	for _, l := range levels {
		if !l.missing {
			return false
		}
	}
	return len(levels) > 0
}

// at has a level for each schema.
func (p *Properties) at(path []string) []level {
	key := pointerKey(path)
	if found, there := p.known[key]; there {
		return found
	}
	levels := make([]level, len(p.roots))
	if len(path) == 0 {
		for i, root := range p.roots {
			levels[i] = level{schemas: []map[string]any{root}}
		}
	} else {
		name := path[len(path)-1]
		for i, parent := range p.at(path[:len(path)-1]) {
			if levels[i] = parent; !parent.open && !parent.missing {
				levels[i] = p.below(p.roots[i], parent.schemas, name)
			}
		}
	}
	p.known[key] = levels
	return levels
}

// pointerKey tells paths apart.
func pointerKey(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// below is the level of a property of values to which the schemas apply.
func (p *Properties) below(root map[string]any, schemas []map[string]any, name string) level {
	e := expansion{of: p, root: root, seen: map[string]bool{}}
	for _, s := range schemas {
		e.add(s, 0)
	}
	found, lists, listed := level{open: e.open}, false, false
	for _, s := range e.all {
		properties, _ := s["properties"].(map[string]any)
		lists = lists || properties != nil
		found.open = found.open || admitsOthers(s)
		value, there := properties[name]
		if !there || value == false {
			continue
		}
		listed = true
		if one, ok := value.(map[string]any); ok {
			found.schemas = append(found.schemas, one)
		}
	}
	switch {
	case found.open, !lists, listed && len(found.schemas) == 0:
		return level{open: true}
	case !listed:
		return level{missing: true}
	}
	return found
}

// admitsOthers reports whether a schema says that there may be properties that it does not list.
func admitsOthers(s map[string]any) bool {
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
		if _, isSchema := s[keyword].(map[string]any); isSchema || s[keyword] == true {
			return true
		}
	}
	patterns, _ := s["patternProperties"].(map[string]any)
	return len(patterns) > 0
}

// expansion finds all schemas that may apply to a value, or to an element of it.
type expansion struct {
	of   *Properties
	root map[string]any
	seen map[string]bool // references
	all  []map[string]any
	open bool
}

func (e *expansion) add(s map[string]any, depth int) {
	e.of.steps++
	if e.of.steps > maxLooked || depth > maxSchemaDepth {
		e.open = true
		return
	}
	e.all = append(e.all, s)
	own, _ := s["$id"].(string)
	base, _ := e.root["$id"].(string)
	e.open = e.open || own != "" && own != base // its references lead to parts of its own
	if ref, given := s["$ref"].(string); given && !e.seen[ref] {
		e.seen[ref] = true
		target := jsonref.Target(e.root, s)
		e.open = e.open || target == nil // an anchor
		e.addAny(target, depth)
	}
	if _, given := s["$dynamicRef"]; given {
		e.open = true
	}
	for _, keyword := range []string{"if", "then", "else", "items", "additionalItems", "unevaluatedItems", "contains"} {
		e.addAny(s[keyword], depth)
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "items", "prefixItems"} {
		for _, one := range list(s[keyword]) {
			e.addAny(one, depth)
		}
	}
	for _, keyword := range []string{"dependentSchemas", "dependencies"} { // the latter is draft-07's, and may have lists of names too
		dependent, _ := s[keyword].(map[string]any)
		for _, one := range dependent {
			e.addAny(one, depth)
		}
	}
}

func (e *expansion) addAny(v any, depth int) {
	if s, ok := v.(map[string]any); ok && s != nil {
		e.add(s, depth+1)
	}
}
