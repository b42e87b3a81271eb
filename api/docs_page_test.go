package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// The page shows every operation and schema, runs no script and loads no resource.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusOK, "", "GET", "/docs", "")
	require.Contains(t, a.Header.Get("Content-Security-Policy"), "default-src 'none'")
	root, err := html.Parse(strings.NewReader(a.text))
	require.NoError(t, err)

	ids, links := map[string]bool{}, []string{}
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			require.NotContains(t, []string{"script", "link", "img", "iframe", "object", "form"}, n.Data)
		}
		for _, attribute := range n.Attr {
			require.False(t, strings.HasPrefix(attribute.Key, "on"), attribute.Key)
			switch attribute.Key {
			case "id":
				require.False(t, ids[attribute.Val], "%s is twice on the page", attribute.Val)
				ids[attribute.Val] = true
			case "href", "src":
				links = append(links, attribute.Val)
			}
		}
		for child := range n.ChildNodes() {
			walk(child)
		}
	}
	walk(root)
	for _, link := range links {
		require.True(t, link == "/openapi.yaml" || ids[strings.TrimPrefix(link, "#")], "%s leads nowhere", link)
	}
	for _, o := range document().Operations() {
		require.True(t, ids[o.ID], o.ID)
		require.Contains(t, a.text, o.Path)
	}
	for name := range document().At("components", "schemas").(map[string]any) {
		require.True(t, ids["schema-"+name], name)
	}
	require.NotContains(t, a.text, "ZgotmplZ", "the template has removed nothing")
	require.Contains(t, a.text, "order.paid", "examples are shown")
}

func TestProse(t *testing.T) {
	t.Parallel()
	require.Equal(t, `from <code>since</code> on, &lt;b&gt; as it is, <code>a&lt;b</code>`, string(prose("from `since` on, <b> as it is, `a<b`")))
}
