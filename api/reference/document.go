package reference

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a part of the OpenAPI document; the zero value is one that does not exist. Names and examples keep their order.
type node struct {
	root *yaml.Node
	here *yaml.Node
}

// parse reads a document.
func parse(text []byte) (node, error) {
	var all yaml.Node
	if err := yaml.Unmarshal(text, &all); err != nil {
		return node{}, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	if all.Kind != yaml.DocumentNode || all.Content[0].Kind != yaml.MappingNode {
		return node{}, errors.New("read the OpenAPI document: it is no object")
	}
	return node{all.Content[0], all.Content[0]}, nil
}

func (n node) exists() bool { return n.here != nil }

// own is a value of the node itself, although it may be a reference.
func (n node) own(name string) node {
	for key, value := range n.entries() {
		if key == name {
			return value
		}
	}
	return node{}
}

// get is the node at a path. It follows references.
func (n node) get(path ...string) node {
	n = n.resolved()
	for _, name := range path {
		n = n.own(name).resolved()
	}
	return n
}

// resolved is what the node refers to, or the node.
func (n node) resolved() node {
	ref, found := strings.CutPrefix(n.own("$ref").text(), "#/")
	if !found {
		return n
	}
	return node{n.root, n.root}.get(strings.Split(ref, "/")...)
}

// schemaName is the name of the schema that the node refers to, or "".
func (n node) schemaName() string {
	name, found := strings.CutPrefix(n.own("$ref").text(), "#/components/schemas/")
	if !found {
		return ""
	}
	return name
}

// entries are the names and values of an object.
func (n node) entries() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		if n.here == nil || n.here.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.here.Content); i += 2 {
			if !yield(n.here.Content[i].Value, node{n.root, n.here.Content[i+1]}) {
				return
			}
		}
	}
}

// items are the values of an array.
func (n node) items() (all []node) {
	if n.here == nil || n.here.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range n.here.Content {
		all = append(all, node{n.root, item})
	}
	return all
}

// text is the text of a scalar, or "".
func (n node) text() string {
	if n.here == nil || n.here.Kind != yaml.ScalarNode {
		return ""
	}
	return strings.TrimSpace(n.here.Value)
}

// texts are those of an array, or that of a scalar.
func (n node) texts() (all []string) {
	for _, item := range n.items() {
		all = append(all, item.text())
	}
	if one := n.text(); one != "" {
		all = append(all, one)
	}
	return all
}
