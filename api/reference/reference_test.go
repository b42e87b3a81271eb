package reference

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const small = `
info: {title: Small, version: "1.10", summary: An API., description: 'With a "payload" in backticks'}
tags: [{name: dead letters, description: What was given up.}]
paths:
  /v1/{id}:
    parameters:
      - {name: id, in: path, required: true, example: dlv_1, schema: {$ref: '#/components/schemas/ID'}}
    post:
      tags: [dead letters]
      summary: Send again
      description: "Admin. It's <b>sent</b> [again](retries.md#x)."
      requestBody:
        content:
          application/json:
            schema:
              type: object
              required: [why]
              properties:
                why: {type: string, maxLength: 10, description: 'Why, as ` + "`a<b`" + `.'}
                limits: {type: object, properties: {burst: {type: [integer, 'null'], minimum: 1}}}
                list: {type: array, items: {type: object, properties: {id: {$ref: '#/components/schemas/ID'}}}}
            example: {why: "it's <late>", limits: {burst: 2}, at: '2026-01-31', none: null, list: []}
      responses:
        '200': {description: Sent., content: {application/json: {schema: {$ref: '#/components/schemas/ID'}, example: dlv_1}}}
        '409': {content: {application/problem+json: {schema: {allOf: [{}, {properties: {type: {enum: ['https://x/conflict', 'https://x/gone']}}}]}}}}
components:
  schemas:
    ID: {type: string, pattern: ^dlv_, description: An id.}
    Either: {oneOf: [{$ref: '#/components/schemas/ID'}, {type: object, properties: {a: {const: b}}}, {type: 'null'}]}
`

func made(t *testing.T) map[string]string {
	t.Helper()
	files, err := Make(Config{
		Document: []byte(small), Errors: "# Errors\n\n## conflict\n\nSee [states](states.md).\n",
		Operations: []Operation{{"sendAgain", "POST", "/v1/{id}", "admin"}},
	})
	require.NoError(t, err)
	texts := map[string]string{}
	for name, file := range files {
		texts[name] = string(file.Content)
	}
	return texts
}

func TestPages(t *testing.T) {
	t.Parallel()
	pages := made(t)
	for _, name := range []string{"", "dead-letters", "types", "errors", "reference.css", "reference.js", "icon.svg"} {
		require.NotEmpty(t, pages[name], name)
	}
	require.Len(t, pages, 7)
	require.NotContains(t, pages[""], "/console/")
	require.Contains(t, pages["dead-letters"], "<title>Dead letters · Small API</title>")
	require.Contains(t, pages["errors"], `<h2 id="conflict">conflict</h2>`)
	require.Contains(t, pages["errors"], `href="`+documentation+`states.md"`)
	require.Equal(t, "/docs/errors#conflict", ErrorAddress("conflict"))
	require.Contains(t, pages["dead-letters"], `<a href="/docs/errors#conflict">conflict</a>, <a href="/docs/errors#gone">gone</a>`)
	require.NotContains(t, pages["dead-letters"], "<b>sent", "HTML in the document is left out")
	require.NotContains(t, pages["dead-letters"], "Admin.", "the scope is shown apart")
}

// A command can be pasted: names stay in their order, and a quote in the body does not end it.
func TestCommand(t *testing.T) {
	t.Parallel()
	_, command, _ := strings.Cut(made(t)["dead-letters"], `<pre class="curl">`)
	command, _, _ = strings.Cut(command, "</pre>")
	command = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">").Replace(command)
	require.Equal(t, `curl -sS -X POST "$EVERPOST_URL/v1/dlv_1" \
  -H "Authorization: Bearer $EVERPOST_KEY" \
  -H 'Content-Type: application/json' \
  -d '{
  "why": "it'\''s <late>",
  "limits": {
    "burst": 2
  },
  "at": "2026-01-31",
  "none": null,
  "list": []
}'`, command)
}

func TestFields(t *testing.T) {
	t.Parallel()
	document, err := parse([]byte(small))
	require.NoError(t, err)
	p := &pages{document: document, markdown: newMarkdown()}
	body := document.get("paths", "/v1/{id}", "post", "requestBody", "content", "application/json", "schema")
	fields, err := p.fields(body, "", 0)
	require.NoError(t, err)
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{"why", "limits", "limits.burst", "list", "list[].id"}, names)
	require.True(t, fields[0].Required)
	require.Equal(t, "up to 10 characters", fields[0].Bounds)
	require.Equal(t, "<p>Why, as <code>a&lt;b</code>.</p>\n", string(fields[0].Description))
	require.Equal(t, []piece{{Text: "integer"}}, fields[2].Type)
	require.Equal(t, "at least 1", fields[2].Bounds)
	require.Equal(t, []piece{{"ID", "/docs/types#ID"}}, fields[4].Type)
	require.Equal(t, "<p>An id.</p>\n", string(fields[4].Description), "that of its type")

	s, err := p.schema("Either", document.get("components", "schemas", "Either"))
	require.NoError(t, err)
	require.Equal(t, []piece{{"ID", "/docs/types#ID"}, {Text: " or "}, {Text: "object"}}, s.Type)
	require.Len(t, s.Variants, 3)
	require.Equal(t, "b", s.Variants[1].Fields[0].Type[0].Text)
}

func TestDocumentsThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "a: [", strings.Replace(small, "'2026-01-31'", "2026-01-31", 1)} {
		_, err := Make(Config{Document: []byte(text), Operations: []Operation{{"sendAgain", "POST", "/v1/{id}", "admin"}}})
		require.Error(t, err, "%.40s", text)
	}
}
