package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

func typeOf(name, group, state string) client.ListedEventType {
	t := client.ListedEventType{Name: name, State: state, Description: "About " + name + "\nand more"}
	if group != "" {
		t.Group = &group
	}
	return t
}

func TestChooseTypes(t *testing.T) {
	t.Parallel()
	all := []client.ListedEventType{
		typeOf("z.lone", "", "active"), typeOf("b.one", "beta", "active"), typeOf("a.two", "Alpha", "deprecated"), typeOf("a.gone", "Alpha", "archived"),
		typeOf("a.kept", "Alpha", "archived"), typeOf("a.one", "Alpha", "active"),
	}
	c, typed := chooseTypes(all, []string{"a.kept", "order.*", "unknown", "b.one"}, "")
	require.Equal(t, []string{"order.*", "unknown"}, typed)
	var lines []string
	for _, g := range c.Groups {
		line := []string{fmt.Sprintf("%s %d %v:", g.Name, g.Chosen, g.Open)}
		for _, one := range g.Types {
			line = append(line, fmt.Sprintf("%s/%v/%v/%v", one.Name, one.Checked, one.Deprecated, one.Archived))
			require.Equal(t, "About "+one.Name, one.Description)
		}
		lines = append(lines, strings.Join(line, " "))
	}
	require.Equal(t, []string{
		"Alpha 1 true: a.kept/true/false/true a.one/false/false/false a.two/false/true/false",
		"beta 1 true: b.one/true/false/false", " 0 true: z.lone/false/false/false",
	}, lines)
	require.Zero(t, c.More)

	c, _ = chooseTypes(all, []string{"*", "a.*", "a.one"}, "a.")
	included := map[string]string{}
	for _, g := range c.Groups {
		for _, one := range g.Types {
			included[one.Name] = one.By
		}
	}
	require.Equal(t, map[string]string{"a.one": "", "a.two": "a.*"}, included, "a pattern has what is not chosen by itself")

	c, _ = chooseTypes(all, []string{"b.one"}, "ALPH")
	require.Len(t, c.Groups, 2, "the group that is looked for, and what is chosen")
	require.Equal(t, "ALPH", c.Find)
	_, typed = chooseTypes(all, []string{"*"}, "")
	require.Empty(t, typed, "all types are none that is chosen")
	_, typed = chooseTypes(all, []string{"*", "everpost.endpoint.disabled"}, "")
	require.Equal(t, []string{"*", "everpost.endpoint.disabled"}, typed)
}

// However large the catalogue is, and whatever is in it, a form has its budget: what is chosen is in it, the rest can be looked for.
func TestTypeChoicesAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		length int
		group  func(i int) string
		more   bool
	}{
		"usual names":      {20, func(i int) string { return fmt.Sprintf("Group %d", i/30) }, true},
		"long names":       {128, func(i int) string { return strings.Repeat("<", 64-4) + fmt.Sprintf("%04d", i) }, true},
		"without a group":  {8, func(int) string { return "" }, true},
		"a small one":      {20, func(i int) string { return fmt.Sprintf("Group %d", i/30) }, false},
		"long with groups": {128, func(int) string { return "One" }, true},
	} {
		var all []client.ListedEventType
		var chosen []string
		n := 1000
		if !test.more {
			n = 200
		}
		for i := range n {
			one := typeOf(fmt.Sprintf("n%0*d", test.length-1, i), test.group(i), "deprecated")
			one.ReplacedBy = &one.Name
			one.Description = strings.Repeat("\"<", 500)
			if all = append(all, one); i%10 == 9 {
				chosen = append(chosen, one.Name)
			}
		}
		c, typed := chooseTypes(all, chosen, "")
		shown, checked := 0, 0
		for _, g := range c.Groups {
			shown += len(g.Types)
			checked += g.Chosen
		}
		require.Len(t, chosen, checked+len(typed), name)
		require.Equal(t, n, shown+c.More+len(typed), name)
		require.Equal(t, strings.HasPrefix(name, "long"), len(typed) > 0, name)
		require.Equal(t, test.more, c.More > 0, name)
		require.LessOrEqual(t, len(fillForTest(t, "choices", c)), maxChoiceBytes+2<<10, name)
		found, _ := chooseTypes(all, nil, all[n-1].Name)
		require.Equal(t, all[n-1].Name, found.Groups[0].Types[0].Name, "it can be found")
	}
}

// The catalogue is read to its end, also if its types are so large that the API cuts its pages.
func TestTheWholeCatalogueIsRead(t *testing.T) {
	t.Parallel()
	asked := 0
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		next := ""
		asked++
		if n < 15 {
			next = strconv.Itoa(n + 1)
		}
		_, _ = fmt.Fprintf(w, `{"data":[{"name":"n%d"}],"next_cursor":%q}`, n, next)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	all, err := readEventTypes(&page{r: r, api: localAPI{handler: answer, from: r}})
	require.NoError(t, err)
	require.Len(t, all, 16)
	require.Equal(t, 16, asked)
}

// A form without a catalogue keeps the types that were chosen while there was one.
func TestChosenTypesAreTypedWithoutACatalogue(t *testing.T) {
	t.Parallel()
	m := newMemory()
	token, s := m.session(webhook.ConsoleSession{TenantID: "acme", Access: webhook.AccessKey}), m.console(t)
	m.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/event-types" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"detail":"busy"}`))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errors":[{"field":"url","message":"is wrong"}]}`))
	}
	w := request(s, http.MethodPost, "/console/t/acme/endpoints/new", keyCookie, token, "type", "order.paid", "type", "order.sent", "event_types", "x.*")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), ">x.*\norder.paid\norder.sent</textarea>")
}
