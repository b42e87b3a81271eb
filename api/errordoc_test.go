package api

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// allClasses returns the types of problems of the API by name.
func allClasses() map[string]class {
	all := map[string]class{}
	for code := webhook.CodeInternal; code <= webhook.CodeUnavailable; code++ {
		all[string(classOf(code).code)] = classOf(code)
	}
	for _, c := range []class{unsupportedMedia(), methodNotAllowed(), requestTimeout(), alreadyCreated()} {
		all[string(c.code)] = c
	}
	return all
}

func TestEveryCodeHasAClassOfItsOwn(t *testing.T) {
	t.Parallel()
	require.Len(t, allClasses(), int(webhook.CodeUnavailable)+1+4)
	require.Equal(t, client.CodeInternal, classOf(webhook.CodeUnavailable+1).code, "CodeUnavailable is the last one")
	require.Equal(t, webhook.CodeInternal.String(), (webhook.CodeUnavailable + 1).String(), "CodeUnavailable is the last one")
}

// docs/errors.md has a section for each type of problem, with its status, title and remedy, and no
// other section.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "errors.md"))
	require.NoError(t, err)
	var sections []string
	for section := range strings.SplitSeq(string(text), "\n## ") {
		name, body, _ := strings.Cut(section, "\n")
		c, known := allClasses()[name]
		if !known {
			require.Contains(t, name, " ", "%q is a heading, and no type of problem", name)
			continue
		}
		sections = append(sections, name)
		require.True(t, strings.HasPrefix(body, fmt.Sprintf("\n%d, %q.\n", c.status, c.title)), "%s: status and title", name)
		_, remedy, _ := strings.Cut(body, "**What to do:** ")
		require.NotEmpty(t, remedy, name)
	}
	slices.Sort(sections)
	require.Equal(t, slices.Sorted(maps.Keys(allClasses())), sections)
}

// The OpenAPI document has every type with its status, and no other.
func TestErrorsAreInTheContract(t *testing.T) {
	t.Parallel()
	d := document()
	found := map[string]int{string(client.CodeMethodNotAllowed): methodNotAllowed().status} // belongs to no operation
	for name := range d.At("components", "responses").(map[string]any) {
		schema, _ := d.At("components", "responses", name, "content", "application/problem+json", "schema", "allOf").([]any)
		if len(schema) != 2 {
			continue
		}
		types, _ := d.Of(schema[1], "properties", "type", "enum").([]any)
		if one, ok := d.Of(schema[1], "properties", "type", "const").(string); ok {
			types = append(types, one)
		}
		for _, of := range types {
			var status int
			_, err := fmt.Sscan(fmt.Sprint(d.Of(schema[1], "properties", "status", "const")), &status)
			require.NoError(t, err)
			found[strings.TrimPrefix(of.(string), client.ProblemBase)] = status
		}
	}
	want := map[string]int{}
	for slug, c := range allClasses() {
		want[slug] = c.status
	}
	require.Equal(t, want, found)
}
