package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed page.html
var pageSource string

// docsPage is the content of the OpenAPI document for the HTML template.
type docsPage struct {
	Title, Version, Summary, Description string
	Groups                               []pageGroup
	Schemas                              []pageSchema
}

type pageGroup struct {
	Name, Description string
	Operations        []pageOperation
}

type pageOperation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []pageParameter
	Request                                *pageBody
	Responses                              []pageResponse
}

type pageParameter struct{ Name, In, Description, Schema string }

type pageBody struct{ Schema, Example string }

type pageResponse struct {
	Status, Description string
	Body                *pageBody
}

type pageSchema struct{ Name, Text string }

// docsOf returns a function that renders the page on its first call.
func docsOf(document []byte, routes []route) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		var d pageDocument
		if err := yaml.Unmarshal(document, &d.root); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document: %w", err)
		}
		text, err := template.New("page").Funcs(template.FuncMap{"prose": prose}).Parse(pageSource)
		if err != nil {
			return nil, fmt.Errorf("read the page's template: %w", err)
		}
		var b bytes.Buffer
		if err := text.Execute(&b, d.page(routes)); err != nil {
			return nil, fmt.Errorf("make the page: %w", err)
		}
		return b.Bytes(), nil
	})
}

// pageDocument is the parsed document.
type pageDocument struct{ root map[string]any }

func (d pageDocument) page(routes []route) docsPage {
	info, _ := d.at("info").(map[string]any)
	p := docsPage{
		Title: asText(info["title"]), Version: asText(info["version"]), Summary: asText(info["summary"]), Description: asText(info["description"]),
	}
	tags, _ := d.at("tags").([]any)
	for _, tag := range tags {
		m, _ := tag.(map[string]any)
		group := pageGroup{Name: asText(m["name"]), Description: asText(m["description"])}
		for _, r := range routes {
			operation, _ := d.at("paths", r.path, strings.ToLower(r.method)).(map[string]any)
			if names, _ := operation["tags"].([]any); slices.Contains(names, any(group.Name)) {
				group.Operations = append(group.Operations, d.operation(r, operation))
			}
		}
		p.Groups = append(p.Groups, group)
	}
	schemas, _ := d.at("components", "schemas").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.Schemas = append(p.Schemas, pageSchema{name, asYAML(schemas[name])})
	}
	return p
}

func (d pageDocument) operation(r route, m map[string]any) pageOperation {
	o := pageOperation{
		ID: r.id, Method: r.method, Path: r.path, Summary: asText(m["summary"]), Description: asText(m["description"]),
		Request: d.body(d.resolve(m["requestBody"])),
	}
	shared, _ := d.at("paths", r.path, "parameters").([]any)
	own, _ := m["parameters"].([]any)
	for _, parameter := range append(slices.Clone(shared), own...) {
		p, _ := d.resolve(parameter).(map[string]any)
		o.Parameters = append(o.Parameters, pageParameter{asText(p["name"]), asText(p["in"]), asText(p["description"]), asYAML(p["schema"])})
	}
	responses, _ := m["responses"].(map[string]any)
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		response, _ := d.resolve(responses[status]).(map[string]any)
		shown := pageResponse{Status: status, Description: asText(response["description"])}
		if status < "400" { // all errors have the same schema
			shown.Body = d.body(response)
		}
		o.Responses = append(o.Responses, shown)
	}
	return o
}

// body returns the schema and an example of a request or response, or nil if it has no content.
func (d pageDocument) body(of any) *pageBody {
	m, _ := of.(map[string]any)
	content, _ := m["content"].(map[string]any)
	for _, media := range content { // each has one media type
		m, _ := media.(map[string]any)
		b := &pageBody{Schema: asYAML(m["schema"])}
		example := m["example"]
		if several, ok := m["examples"].(map[string]any); ok {
			first, _ := d.resolve(several["usual"]).(map[string]any)
			example = first["value"]
		}
		if example != nil {
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false) // the template escapes
			enc.SetIndent("", "  ")
			if err := enc.Encode(example); err == nil { // never fails for plain YAML values
				b.Example = text.String()
			}
		}
		return b
	}
	return nil
}

// at returns the node at a path of the document; resolve follows a reference.
func (d pageDocument) at(path ...string) any {
	var node any = d.root
	for _, step := range path {
		m, _ := node.(map[string]any)
		node = m[step]
	}
	return node
}

func (d pageDocument) resolve(node any) any {
	m, _ := node.(map[string]any)
	if ref := asText(m["$ref"]); ref != "" {
		return d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return node
}

func asText(v any) string {
	s, _ := v.(string)
	return strings.TrimSpace(s)
}

// asYAML formats a schema. A reference is shown as the name of its schema.
func asYAML(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(string(text), "'#/components/schemas/", "'"), "$ref: ", ""))
}

// prose formats a text of the document as HTML, with text in backticks as code.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if part = template.HTMLEscapeString(part); i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}
