package reference

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// documentation is where the pages are that an installation does not serve itself.
const documentation = "https://github.com/everpost/everpost/blob/main/docs/"

// newMarkdown reads the format of the documentation. HTML in a text is left out.
func newMarkdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(links{}, 0))))
}

// prose makes HTML of a text.
func (p *pages) prose(of string) (template.HTML, error) {
	if of == "" {
		return "", nil
	}
	var b bytes.Buffer
	if err := p.markdown.Convert([]byte(of), &b); err != nil {
		return "", fmt.Errorf("write a text: %w", err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // made by goldmark, which leaves HTML out
}

// links leads links between pages of the documentation to where these are.
type links struct{}

// Transform implements parser.ASTTransformer.
func (links) Transform(page *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns no error
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(target(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
}

func target(link string) string {
	switch {
	case link == "../api/openapi.yaml":
		return "/openapi.yaml"
	case strings.HasPrefix(link, "#"), strings.HasPrefix(link, "/"), strings.Contains(link, "://"):
		return link
	}
	return documentation + link
}
