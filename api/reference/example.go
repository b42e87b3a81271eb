package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"
)

// exampleOf is the example beside a schema, as JSON or, if it is a text in another format, as it is; "" without one.
func exampleOf(media node) (string, error) {
	example := media.get("example")
	if !example.exists() {
		example = media.get("examples", "usual", "value")
	}
	if !example.exists() {
		return "", nil
	}
	if text := example.text(); strings.Contains(text, "\n") {
		return text, nil
	}
	var plain, pretty bytes.Buffer
	if err := writeJSON(&plain, example); err != nil {
		return "", err
	}
	if err := json.Indent(&pretty, plain.Bytes(), "", "  "); err != nil {
		return "", fmt.Errorf("write an example: %w", err)
	}
	return pretty.String(), nil
}

// writeJSON writes a value with its names in the document's order.
func writeJSON(b *bytes.Buffer, n node) error {
	switch n.here.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		between := ""
		for name, value := range n.entries() {
			b.WriteString(between + quote(name) + ":")
			between = ","
			if err := writeJSON(b, value); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.items() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		return writeScalar(b, n.here)
	case yaml.DocumentNode, yaml.AliasNode:
		return fmt.Errorf("line %d of the OpenAPI document: not a value of JSON", n.here.Line)
	}
	return nil
}

func writeScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		b.WriteString("null")
	case "!!int", "!!float", "!!bool":
		b.WriteString(n.Value)
	case "!!str":
		b.WriteString(quote(n.Value))
	default:
		return fmt.Errorf("line %d of the OpenAPI document: a value of JSON has no tag %s", n.Line, n.ShortTag())
	}
	return nil
}

// quote writes a text as JSON. The template escapes it for HTML.
func quote(text string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic("a text can always be written") // encoding/json replaces what is not UTF-8
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// curl is the command that makes a request. It can be pasted into a shell that has EVERPOST_URL and EVERPOST_KEY.
func curl(o Operation, path, media, body string) string {
	var b strings.Builder
	b.WriteString("curl -sS ")
	if o.Method != http.MethodGet {
		b.WriteString("-X " + o.Method + " ")
	}
	b.WriteString(`"$EVERPOST_URL` + path + `"`)
	if o.Scope != "" {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $EVERPOST_KEY\"")
	}
	if body != "" {
		b.WriteString(" \\\n  -H 'Content-Type: " + media + "' \\\n  -d '" + strings.ReplaceAll(body, "'", `'\''`) + "'")
	}
	return b.String()
}
