package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/filter"
)

// The generators draw from few names and values, so that filters match about half of the events.

func scalar() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		`1`, `1.0`, `10e-1`, `0.1E1`, `2`, `-1`, `0`, `-0.0`, `1e3`, `1000`, `"a"`, `"\u0061"`, `"ab"`, `"b"`, `""`, `"é"`, `true`, `false`, `null`,
	})
}

func text() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`"a"`, `"b"`, `"ab"`, `""`, `"é"`, `"\u0061"`})
}

func name() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`"x"`, `"y"`, `"z"`, `"\u0078"`, `"~/"`, `""`})
}

func space() *rapid.Generator[string] { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}) }

func join(t *rapid.T, begin string, parts []string, end string) string {
	s := space()
	for i := range parts {
		parts[i] = s.Draw(t, "space") + parts[i] + s.Draw(t, "space")
	}
	return begin + strings.Join(parts, ",") + end
}

// value is a payload, or a part of one. Names may be repeated.
func value(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		what := rapid.IntRange(0, 9).Draw(t, "what")
		if depth == 0 || what < 4 {
			return scalar().Draw(t, "scalar")
		}
		var parts []string
		if what < 6 {
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				parts = append(parts, value(depth-1).Draw(t, "element"))
			}
			return join(t, "[", parts, "]")
		}
		for range rapid.IntRange(0, 4).Draw(t, "names") {
			parts = append(parts, name().Draw(t, "name")+space().Draw(t, "space")+":"+value(depth-1).Draw(t, "value"))
		}
		for i := range rapid.SampledFrom([]int{0, 0, 0, 17}).Draw(t, "more") {
			parts = append(parts, fmt.Sprintf(`"more%d":%d`, i, i))
		}
		return join(t, "{", parts, "}")
	})
}

// condition is a part of a filter that is about a value.
func condition(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		what := rapid.IntRange(0, 9).Draw(t, "what")
		switch {
		case depth == 0 || what < 2:
			return scalar().Draw(t, "scalar")
		case what == 2:
			var parts []string
			for range rapid.IntRange(1, 2).Draw(t, "entries") {
				part := condition(depth - 1).Filter(func(s string) bool { return s[0] != '[' })
				parts = append(parts, part.Draw(t, "entry"))
			}
			return join(t, "[", parts, "]")
		}
		parts := map[string]string{}
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			if rapid.Bool().Draw(t, "field") {
				n := rapid.SampledFrom([]string{`"x"`, `"y"`, `"z"`, `"~/"`, `""`, `"more3"`}).Draw(t, "name")
				parts[n] = condition(depth-1).Draw(t, "condition")
				continue
			}
			op, wanted := operation(t, depth-1)
			parts[op] = wanted
		}
		var items []string
		for op, wanted := range parts {
			items = append(items, op+":"+wanted)
		}
		return "{" + strings.Join(items, ",") + "}"
	})
}

func operation(t *rapid.T, depth int) (op, wanted string) {
	list := func(of *rapid.Generator[string]) string {
		return "[" + strings.Join(rapid.SliceOfN(of, 1, 3).Draw(t, "list"), ",") + "]"
	}
	op = rapid.SampledFrom([]string{
		"$eq", "$ne", "$neq", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$startsWith", "$endsWith", "$contains", "$exists", "$exist", "$and", "$or", "$not",
	}).Draw(t, "operator")
	switch op {
	case "$eq", "$ne", "$neq":
		wanted = value(1).Filter(func(s string) bool {
			_, err := filter.Parse([]byte(`{"payload":{"$eq":` + s + `}}`))
			return err == nil
		}).Draw(t, "wanted")
	case "$gt", "$gte", "$lt", "$lte":
		wanted = scalar().Filter(func(s string) bool { return s[0] == '"' || s[0] == '-' || s[0] <= '9' }).Draw(t, "wanted")
	case "$in", "$nin":
		wanted = list(scalar())
		if rapid.Bool().Draw(t, "text") {
			wanted = text().Draw(t, "wanted")
		}
	case "$startsWith", "$endsWith", "$contains":
		wanted = list(text())
		if rapid.Bool().Draw(t, "one") {
			wanted = text().Draw(t, "wanted")
		}
	case "$exists", "$exist":
		wanted = rapid.SampledFrom([]string{"true", "false"}).Draw(t, "wanted")
	case "$and", "$or":
		wanted = list(condition(depth))
	case "$not":
		wanted = condition(depth).Draw(t, "wanted")
	}
	return `"` + op + `"`, wanted
}

// filterOf parses a filter of the payload; a drawn one may be nested too deeply.
func filterOf(t *rapid.T, condition string) *filter.Filter {
	f, err := filter.Parse([]byte(`{"payload":` + condition + `}`))
	if err != nil {
		require.ErrorContains(t, err, "nested")
		t.Skip("nested too deeply")
	}
	return f
}

func TestMatchIsTheReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := value(4).Draw(t, "payload")
		shared := event(e)
		for range 3 {
			c := condition(2).Draw(t, "condition")
			f := filterOf(t, c)
			want := reference([]byte(`{"payload":`+c+`}`), []byte(e))
			require.Equal(t, want, f.Match(shared), "%s of %s", c, e)
			explained := f.Explain(shared)
			require.Equal(t, want, explained.Matched)
			require.Equal(t, want, explained.Failure.Pointer == "", "%s of %s", c, e)
			require.Equal(t, explained, f.Explain(event(e)), "an event that others have looked into is the same event")
			require.Equal(t, want, parsed(t, f.Text()).Match(event(e)), "the text of a filter is the same filter")
		}
	})
}

func parsed(t *rapid.T, text string) *filter.Filter {
	f, err := filter.Parse([]byte(text))
	require.NoError(t, err)
	return f
}

// The laws of logic hold wherever a condition may stand, also below arrays.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := event(value(4).Draw(t, "payload"))
		a, b := condition(1).Draw(t, "a"), condition(1).Draw(t, "b")
		at := rapid.SampledFrom([]string{`%s`, `{"x":%s}`, `{"x":{"y":%s}}`, `[%s]`}).Draw(t, "at")
		match := func(format string, args ...any) bool {
			return filterOf(t, fmt.Sprintf(at, fmt.Sprintf(format, args...))).Match(e)
		}
		if at[0] != '[' || a[0] != '[' {
			require.Equal(t, match(`%s`, a), match(`{"$not":{"$not":%s}}`, a), "not twice")
			require.Equal(t, match(`%s`, a), match(`{"$and":[%s]}`, a))
			require.Equal(t, match(`%s`, a), match(`{"$or":[%s]}`, a))
		}
		require.Equal(t, match(`{"$not":{"$or":[%s,%s]}}`, a, b), match(`{"$and":[{"$not":%s},{"$not":%s}]}`, a, b), "De Morgan")
		require.Equal(t, match(`{"$not":{"$and":[%s,%s]}}`, a, b), match(`{"$or":[{"$not":%s},{"$not":%s}]}`, a, b), "De Morgan")
		require.Equal(t, match(`{"$or":[%s,%s]}`, a, b), match(`{"$or":[%s,%s]}`, b, a), "the order does not matter")
		require.Equal(t, match(`{"$and":[%s,%s]}`, a, b), match(`{"$and":[%s,%s]}`, b, a), "the order does not matter")
		v := scalar().Draw(t, "v")
		require.Equal(t, match(`{"$ne":%s}`, v), match(`{"$not":{"$eq":%s}}`, v))
		require.Equal(t, match(`{"$nin":[%s,7]}`, v), match(`{"$not":{"$in":[%s,7]}}`, v))
		require.Equal(t, match(`{"$in":[%s,7]}`, v), match(`{"$or":[%s,7]}`, v))
		require.Equal(t, match(`{"$exists":false}`), match(`{"$not":{"$exists":true}}`))
	})
}

// Numbers that are written in any way compare as those they are.
func TestNumbersAreDecimals(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		for _, op := range []string{"$eq", "$gt", "$gte", "$lt", "$lte", "$ne"} {
			c := fmt.Sprintf(`{%q:%s}`, op, b)
			require.Equal(t, reference([]byte(`{"payload":`+c+`}`), []byte(a)), filterOf(t, c).Match(event(a)), "%s %s", a, c)
		}
		require.True(t, filterOf(t, a).Match(event(a+"")), a)
	})
}
