package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// maxReferencePage is the size of a page of the reference, in bytes.
const maxReferencePage = 300 << 10

// referencePage is what a test finds on a page.
type referencePage struct {
	text  string
	ids   map[string]bool
	links []string
}

func readReferencePage(t *testing.T, b *bundle, path string) referencePage {
	t.Helper()
	a := b.ok(t, http.StatusOK, "", "GET", path, "")
	require.Contains(t, a.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, a.Header.Get("Content-Security-Policy"), "unsafe")
	require.Less(t, len(a.text), maxReferencePage, path)
	require.NotContains(t, a.text, "ZgotmplZ", "the template has removed nothing")
	root, err := html.Parse(strings.NewReader(a.text))
	require.NoError(t, err)
	p := referencePage{text: a.text, ids: map[string]bool{}}
	for n := range root.Descendants() {
		require.False(t, n.Type == html.ElementNode && slices.Contains([]string{"style", "img", "iframe", "object", "form"}, n.Data), n.Data)
		if n.Type == html.ElementNode && n.Data == "script" {
			require.Nil(t, n.FirstChild, "a script in %s", path)
		}
		for _, attribute := range n.Attr {
			require.False(t, attribute.Key == "style" || strings.HasPrefix(attribute.Key, "on"), attribute.Key)
			switch attribute.Key {
			case "id":
				require.False(t, p.ids[attribute.Val], "%s is twice on %s", attribute.Val, path)
				p.ids[attribute.Val] = true
			case "href", "src":
				p.links = append(p.links, attribute.Val)
			}
		}
	}
	return p
}

// The pages show every operation, type and error. All that they link to is there.
func TestReference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pages := map[string]referencePage{"/docs": readReferencePage(t, b, "/docs")}
	for queue := pages["/docs"].links; len(queue) > 0; queue = queue[1:] {
		path, _, _ := strings.Cut(queue[0], "#")
		if _, seen := pages[path]; seen || !strings.HasPrefix(path, "/docs/") || strings.Contains(path, "?v=") {
			continue
		}
		pages[path] = readReferencePage(t, b, path)
		queue = append(queue, pages[path].links...)
	}
	for at, p := range pages {
		for _, link := range p.links {
			path, anchor, _ := strings.Cut(link, "#")
			switch {
			case strings.HasPrefix(link, "https://"):
			case strings.Contains(link, "?v="):
				a := b.ok(t, http.StatusOK, "", "GET", link, "")
				require.Contains(t, a.Header.Get("Cache-Control"), "immutable", link)
			case !strings.HasPrefix(link, "/docs") && !strings.HasPrefix(link, "#"):
				require.Contains(t, []string{"/openapi.yaml", "/console/"}, link)
			case path == "":
				require.True(t, pages[at].ids[anchor], "%s on %s leads nowhere", link, at)
			default:
				require.Contains(t, pages, path, "%s on %s leads nowhere", link, at)
				require.True(t, anchor == "" || pages[path].ids[anchor], "%s on %s leads nowhere", link, at)
			}
		}
	}
	for _, o := range document().Operations() {
		tags := document().In(o, "tags").([]any)
		group := pages["/docs/"+strings.ReplaceAll(tags[0].(string), " ", "-")]
		require.True(t, pages["/docs"].ids[o.ID] && group.ids[o.ID], o.ID)
		require.Contains(t, group.text, o.Path)
	}
	for name := range document().At("components", "schemas").(map[string]any) {
		require.True(t, pages["/docs/types"].ids[name], name)
	}
	for code, c := range allClasses() {
		require.True(t, pages["/docs/errors"].ids[code], code)
		require.Contains(t, pages["/docs/errors"].text, c.title)
	}
	require.Contains(t, pages["/docs/events"].text, "order.paid", "examples are shown")
	b.ok(t, http.StatusNotFound, "", "GET", "/docs/none", "")
	b.ok(t, http.StatusBadRequest, "", "GET", "/docs/errors?w=1", "")
}

// The document names every page, and no other one.
func TestReferencePagesAreInTheContract(t *testing.T) {
	t.Parallel()
	h := newDocumentHandler(&Config{Version: "dev"}, routes())
	pages, err := h.pages()
	require.NoError(t, err)
	parameters := document().At("paths", "/docs/{page}", "parameters").([]any)
	for _, name := range document().Of(parameters[0], "schema", "enum").([]any) {
		require.Contains(t, pages, name)
		delete(pages, name.(string))
	}
	require.Len(t, pages, 1, "the first page has no name")
}

// An installation without a console does not link to it.
func TestReferenceOfAnInstallationWithoutConsole(t *testing.T) {
	t.Parallel()
	for _, links := range []ConsoleLinks{nil, setup(t)} {
		h := newDocumentHandler(&Config{ConsoleLinks: links}, routes())
		pages, err := h.pages()
		require.NoError(t, err)
		require.Equal(t, links != nil, strings.Contains(string(pages[""].Content), `href="/console/"`))
	}
}

// The commands of the reference name real addresses: every parameter of a path has an example.
func TestCommandsOfTheReferenceAreComplete(t *testing.T) {
	t.Parallel()
	h := newDocumentHandler(&Config{}, routes())
	pages, err := h.pages()
	require.NoError(t, err)
	commands := 0
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, part := range strings.Split(string(pages[name].Content), `<pre class="curl">`)[1:] {
			command, _, _ := strings.Cut(html.UnescapeString(part), "</pre>")
			address, _, _ := strings.Cut(command, "\n")
			require.NotContains(t, address, "{", name)
			require.NotContains(t, address, `//"`, name)
			commands++
		}
	}
	require.Len(t, routes(), commands)
}
