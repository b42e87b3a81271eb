package filter_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
)

// FuzzParse: whatever is taken as a filter is the same filter after it was stored, and matches without failing.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"type":"x"}`, `{"payload":{"a":{"$gte":1e3,"$in":[1,"x",null]},"$or":[{"b":[1,{"$ne":2}]}]}}`, `{"payload":{"$eq":{"a":[{}]}}}`,
		`{"$not":{"tags":{"$nin":"x"}}}`, `{"payload":"\ud83d\ude00"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := filter.Parse(text)
		if err != nil {
			require.Nil(t, parsed)
			wrong := new(filter.Error)
			require.ErrorAs(t, err, &wrong)
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		require.LessOrEqual(t, len(parsed.Text()), len(text))
		if parsed.Text() != "" {
			again, err := filter.Parse([]byte(parsed.Text()))
			require.NoError(t, err)
			require.Equal(t, parsed.Text(), again.Text())
		}
		for _, payload := range []string{string(text), `{"a":[1,{"b":"x"}]}`, `[]`, `"x`} {
			e := filter.NewEvent(filter.Fields{Type: "x", Tags: []string{"a"}, Payload: []byte(payload)})
			require.Equal(t, parsed.Match(e), parsed.Explain(e).Matched)
		}
	})
}

// FuzzMatch: any payload can be matched, and one that is JSON as the reference matches it.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"$gt":1}}`, `{"a":[1,2]}`},
		{`{"a":{"b":1,"$or":[{"c":"x"},[1]]}}`, `{"a":[{"b":1},{"c":"\u0078"}],"a":null}`},
		{`{"$not":{"$in":"x"}}`, `["x",["y"]]`},
		{`[{"$eq":{"a":1}}]`, `[{"a":1.0,"a":1}]`},
		{`-1.50e1`, `-15`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, condition, payload []byte) {
		text := append(append([]byte(`{"payload":`), condition...), '}')
		parsed, err := filter.Parse(text)
		if err != nil {
			return
		}
		explained := parsed.Explain(filter.NewEvent(filter.Fields{Type: "order.paid", Payload: payload}))
		require.True(t, explained.Matched || explained.Failure.Pointer != "")
		if json.Valid(payload) && readable(payload) && readable(condition) && parsed.Text() != "" && !explained.Undecided {
			require.Equal(t, reference(text, payload), explained.Matched)
		}
	})
}

// readable reports whether encoding/json and math/big read a text as it is: not half of a surrogate pair, and no large exponent.
func readable(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for i := range text {
		if text[i] == 'u' || (text[i] == 'e' || text[i] == 'E') && i+4 < len(text) {
			return false
		}
	}
	return true
}
