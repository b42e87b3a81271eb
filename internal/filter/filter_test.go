package filter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
)

func parse(t *testing.T, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Parse([]byte(text))
	require.NoError(t, err, text)
	return f
}

// ofPayload is a filter of the payload only.
func ofPayload(t *testing.T, text string) *filter.Filter {
	t.Helper()
	return parse(t, `{"payload":`+text+`}`)
}

func event(payload string) *filter.Event {
	return filter.NewEvent(filter.Fields{Type: "order.paid", Payload: []byte(payload)})
}

// same are cases of the filter language: a payload, a filter of it, and whether it matches.
type same struct {
	payload, filter string
	want            bool
}

func (c same) check(t *testing.T) {
	t.Helper()
	f, e := ofPayload(t, c.filter), event(c.payload)
	explained := f.Explain(e)
	require.Equal(t, c.want, f.Match(e), "%s of %s: %s", c.filter, c.payload, explained.Failure)
	require.Equal(t, c.want, explained.Matched)
	require.Equal(t, c.want, f.Match(event(c.payload)), "without what Explain has left")
	if not, err := filter.Parse([]byte(`{"$not":{"payload":` + c.filter + `}}`)); err == nil { // else it is nested too deeply
		require.Equal(t, !c.want, not.Match(e), "not %s of %s", c.filter, c.payload)
	}
	if !c.want {
		require.Contains(t, explained.Failure.Pointer, "/payload")
		require.NotEmpty(t, explained.Failure.Wanted)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []same{
		// Plain values.
		{`{"a":1}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":"1"}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":true}`, `{"a":true}`, true},
		{`{"a":"true"}`, `{"a":true}`, false},
		{`{"a":null}`, `{"a":null}`, true},
		{`{}`, `{"a":null}`, false},
		{`{"a":0}`, `{"a":false}`, false},
		{`{"a":""}`, `{"a":""}`, true},
		{`{"a":{"b":{"c":"x"}}}`, `{"a":{"b":{"c":"x"}}}`, true},
		{`{"a":5}`, `{"a":{"b":1}}`, false},
		{`{"a":5}`, `{"a":{"b":{"$ne":1}}}`, true},
		{` { "a" : [ 1 , 2 ] } `, `{"a":2}`, true},

		// Payloads that are no objects.
		{`7`, `7`, true},
		{`"x"`, `{"$startsWith":"x"}`, true},
		{`null`, `null`, true},
		{`null`, `{"a":1}`, false},
		{`[1,2]`, `2`, true},
		{`[]`, `{"$exists":true}`, true},
		{`[{"a":1}]`, `{"a":1}`, true},

		// Numbers are decimals.
		{`{"a":1.0}`, `{"a":1}`, true},
		{`{"a":1e2}`, `{"a":100}`, true},
		{`{"a":100}`, `{"a":1E+2}`, true},
		{`{"a":0.1}`, `{"a":10e-2}`, true},
		{`{"a":-0}`, `{"a":0}`, true},
		{`{"a":0e999999999999999999999}`, `{"a":0.00}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":0.30000000000000004}`, `{"a":0.3}`, false},
		{`{"a":1e999999999}`, `{"a":{"$gt":1e999999998}}`, true},
		{`{"a":1e999999999999999999999999}`, `{"a":{"$gt":9e999999999}}`, true},
		{`{"a":-1e999999999999999999999999}`, `{"a":{"$lt":-9e999999999}}`, true},
		{`{"a":1e-999999999999999999999999}`, `{"a":{"$gt":0,"$lt":1e-999999999}}`, true},
		{`{"a":0.5}`, `{"a":{"$gt":0.49,"$lt":0.51}}`, true},
		{`{"a":-2}`, `{"a":{"$lt":-1.5}}`, true},
		{`{"a":12}`, `{"a":{"$gt":9}}`, true},
		{`{"a":120}`, `{"a":{"$gte":120.0,"$lte":1.2e2}}`, true},
		{`{"a":"12"}`, `{"a":{"$gt":9}}`, false},

		// Strings compare by bytes.
		{`{"a":"b"}`, `{"a":{"$gt":"a","$lt":"c"}}`, true},
		{`{"a":"Z"}`, `{"a":{"$lt":"a"}}`, true},
		{`{"a":"é"}`, `{"a":{"$gt":"z"}}`, true},
		{`{"a":"𝄞"}`, `{"a":{"$gt":"\uffff"}}`, true},
		{`{"a":"ab"}`, `{"a":{"$gt":"a"}}`, true},
		{`{"a":"2025-03-01T00:00:00Z"}`, `{"a":{"$gte":"2025-01-01T00:00:00Z"}}`, true},
		{`{"a":"order.paid"}`, `{"a":{"$startsWith":"order.","$endsWith":"paid","$contains":"r.p"}}`, true},
		{`{"a":"order.paid"}`, `{"a":{"$contains":["x","paid"]}}`, true},
		{`{"a":"order.paid"}`, `{"a":{"$endsWith":["x","pai"]}}`, false},
		{`{"a":7}`, `{"a":{"$contains":"7"}}`, false},
		{`{"a":"x"}`, `{"a":{"$contains":""}}`, true},

		// Lists of values.
		{`{"a":"x"}`, `{"a":{"$in":["y","x"]}}`, true},
		{`{"a":2.0}`, `{"a":{"$in":["y",2]}}`, true},
		{`{"a":null}`, `{"a":{"$in":[null]}}`, true},
		{`{"a":true}`, `{"a":{"$in":[false,"true"]}}`, false},
		{`{"a":false}`, `{"a":{"$in":[false]}}`, true},
		{`{"a":{}}`, `{"a":{"$in":[1,"x"]}}`, false},
		{`{"a":"x"}`, `{"a":{"$nin":["y"]}}`, true},
		{`{}`, `{"a":{"$in":["y"]}}`, false},
		{`{}`, `{"a":{"$nin":["y"]}}`, true},
		{`{"a":3}`, `{"a":{"$in":3}}`, true},
		{`{"a":"some text"}`, `{"a":{"$in":"me te"}}`, true},
		{`{"a":["some text"]}`, `{"a":{"$in":"me te"}}`, false},
		{`{"a":["me te"]}`, `{"a":{"$in":"me te"}}`, true},
		{`{"a":["me te"]}`, `{"a":{"$nin":"me te"}}`, false},

		// Missing fields.
		{`{}`, `{"a":1}`, false},
		{`{}`, `{"a":{"$ne":1}}`, true},
		{`{}`, `{"a":{"$neq":1}}`, true},
		{`{}`, `{"a":{"$gt":1}}`, false},
		{`{}`, `{"a":{"$not":{"$gt":1}}}`, true},
		{`{}`, `{"a":{"$exists":false}}`, true},
		{`{}`, `{"a":{"$exist":true}}`, false},
		{`{"a":null}`, `{"a":{"$exists":true}}`, true},
		{`{"a":null}`, `{"a":{"$exists":false}}`, false},
		{`{}`, `{"a":{"b":{"c":{"$exists":false}}}}`, true},
		{`{}`, `{"a":{"b":{"$ne":1,"$exists":true}}}`, false},
		{`{}`, `{"a":{"$contains":""}}`, false},

		// Arrays: one element, the same for all fields and comparisons of a condition.
		{`{"a":["x","y"]}`, `{"a":"y"}`, true},
		{`{"a":[]}`, `{"a":"y"}`, false},
		{`{"a":[0,4]}`, `{"a":{"$gt":1,"$lt":3}}`, false},
		{`{"a":[0,2,4]}`, `{"a":{"$gt":1,"$lt":3}}`, true},
		{`{"a":[{"b":1,"c":2},{"b":2,"c":1}]}`, `{"a":{"b":1,"c":1}}`, false},
		{`{"a":[{"b":1,"c":2},{"b":2,"c":1}]}`, `{"a":{"b":2,"c":1}}`, true},
		{`{"a":[{"b":1},{"b":2}]}`, `{"a":{"$and":[{"b":1},{"b":2}]}}`, true},
		{`{"a":[{"b":[1,2]},{"b":[3]}]}`, `{"a":{"b":3}}`, true},
		{`{"a":[[1,2],[3]]}`, `{"a":3}`, true},
		{`{"a":[[{"b":1}]]}`, `{"a":{"b":1}}`, true},
		{`{"a":["x","y"]}`, `{"a":{"$ne":"x"}}`, false},
		{`{"a":["x","y"]}`, `{"a":{"$nin":["z"]}}`, true},
		{`{"a":["x","y"]}`, `{"a":{"$not":{"$startsWith":"y"}}}`, false},
		{`{"a":[{"b":1},{"c":1}]}`, `{"a":{"b":{"$ne":1}}}`, true},
		{`{"a":[{"b":1},{"b":1}]}`, `{"a":{"b":{"$ne":1}}}`, false},
		{`{"a":[]}`, `{"a":{"b":{"$ne":1}}}`, false},
		{`{"a":[{"b":1}]}`, `{"a":{"$not":{"b":1}}}`, false},
		{`{"a":[]}`, `{"a":{"$exists":true}}`, true},
		{`{"a":[1,2]}`, `{"a":{"$eq":[1,2]}}`, true},
		{`{"a":[1,2,3]}`, `{"a":{"$eq":[1,2]}}`, false},
		{`{"a":[[1,2],3]}`, `{"a":{"$eq":[1,2]}}`, true},
		{`{"a":[1,2]}`, `{"a":{"$ne":[1,2]}}`, false},
		{`{"a":["x","y","z"]}`, `{"a":["x","z"]}`, true},
		{`{"a":["x","y"]}`, `{"a":["x","z"]}`, false},
		{`{"a":"x"}`, `{"a":["x"]}`, false},
		{`{"a":[5,6]}`, `{"a":[{"$gt":5},5]}`, true},

		// Whole values.
		{`{"a":{"x":1,"y":[true]}}`, `{"a":{"$eq":{"y":[true],"x":1.0}}}`, true},
		{`{"a":{"x":1,"y":2}}`, `{"a":{"$eq":{"x":1}}}`, false},
		{`{"a":{}}`, `{"a":{"$eq":{}}}`, true},
		{`{"a":{"x":1}}`, `{"a":{"$eq":{}}}`, false},
		{`{"a":[]}`, `{"a":{"$eq":[]}}`, true},
		{`{"a":{"x":2,"x":1}}`, `{"a":{"$eq":{"x":1}}}`, true},

		// Combinations.
		{`{"a":1,"b":2}`, `{"$or":[{"a":2},{"b":2}]}`, true},
		{`{"a":1,"b":2}`, `{"$or":[{"a":2},{"b":3}]}`, false},
		{`{"a":1,"b":2}`, `{"a":1,"$and":[{"b":2},{"$not":{"b":1}}]}`, true},
		{`{"a":1}`, `{"a":{"$or":[1,2]}}`, true},
		{`{"a":3}`, `{"a":{"$or":[1,{"$gt":2}]}}`, true},
		{`{"a":3}`, `{"a":{"$not":3}}`, false},

		// Names: the last of repeated ones, escapes, many.
		{`{"a":1,"a":2}`, `{"a":2}`, true},
		{`{"a":1,"a":2}`, `{"a":1}`, false},
		{`{"a":{"b":1},"a":{"c":1}}`, `{"a":{"b":{"$exists":false}}}`, true},
		{`{"\u0061\/b":1}`, `{"a/b":1}`, true},
		{`{"a~b":{"c":1}}`, `{"a~b":{"c":1}}`, true},
		{`{"a":1}`, `{"\u0061":1}`, true},
		{`{"\ud83d\ude00":"\ud83d\ude00"}`, `{"😀":"😀"}`, true},
		{`{"a":"x\"\\\n\u0000"}`, `{"a":"x\"\\\n\u0000"}`, true},
		{`{"person.age":1}`, `{"person.age":1}`, true},
		{`{"person":{"age":1}}`, `{"person.age":1}`, false},
		{`{"":1}`, `{"":1}`, true},
		{`{"a0":0,"a1":1,"a2":2,"a3":3,"a4":4,"a5":5,"a6":6,"a7":7,"a8":8,"\u0061\u0039":9,"a3":33,"a10":10,"b1":1,"b2":1,"b3":1,"b4":1,"b5":1,"b6":1}`,
			`{"a9":9,"a3":33,"a10":10,"b":{"$ne":1}}`, true},

		// Half of a surrogate pair is equal to nothing, not even to the character that stands for it elsewhere.
		{`{"a":"\ud800"}`, `{"a":"\ufffd"}`, false},
		{`{"a":"\ud800x"}`, `{"a":{"$endsWith":"x"}}`, true},
		{`{"a":"\udc00\ud800"}`, `{"a":{"$exists":true}}`, true},
		{`{"a":"\ud83d\u0061"}`, `{"a":{"$endsWith":"a"}}`, true},
	} {
		c.check(t)
	}
}

func TestFieldsOfAnEvent(t *testing.T) {
	t.Parallel()
	full := filter.Fields{
		Type: "order.paid", ExternalID: `no "17" é`, OrderingKey: "customer-5", Tags: []string{"eu", "vip"}, Payload: []byte(` {"a":[1,{"b":2}]} `),
	}
	bare := filter.Fields{Type: "order.paid", Payload: []byte(`"x"`)}
	for _, c := range []struct {
		filter     string
		full, bare bool
	}{
		{`{}`, true, true},
		{`{"type":"order.paid"}`, true, true},
		{`{"type":{"$startsWith":"order."},"payload":{"a":{"b":2}}}`, true, false},
		{`{"external_id":"no \"17\" é"}`, true, false},
		{`{"external_id":{"$exists":false}}`, false, true},
		{`{"external_id":{"$ne":"x"}}`, true, true},
		{`{"ordering_key":{"$endsWith":"-5"}}`, true, false},
		{`{"tags":"vip"}`, true, false},
		{`{"tags":["vip","eu"]}`, true, false},
		{`{"tags":{"$nin":["us"]}}`, true, true},
		{`{"tags":{"$exists":true}}`, true, false},
		{`{"$or":[{"tags":"us"},{"type":"order.paid"}]}`, true, true},
		{`{"$not":{"tags":"eu"}}`, false, true},
		{`{"payload":"x"}`, false, true},
		{`{"payload":1}`, false, false},
	} {
		f := parse(t, c.filter)
		require.Equal(t, c.full, f.Match(filter.NewEvent(full)), c.filter)
		require.Equal(t, c.bare, f.Match(filter.NewEvent(bare)), c.filter)
	}
}

func TestWithoutConditions(t *testing.T) {
	t.Parallel()
	for _, f := range []*filter.Filter{nil, parse(t, ` { } `)} {
		require.Empty(t, f.Text())
		require.True(t, f.Match(event("1")))
		require.Equal(t, filter.Explanation{Matched: true}, f.Explain(event("1")))
	}
	require.Equal(t, `{"payload":{"a":1}}`, parse(t, " {\n\"payload\" : {\"a\":\t1 } }").Text())
}

// A filter that is not right is refused with the place and a sentence.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	many := func(n int, s string) string { return strings.Repeat(s+",", n-1) + s }
	deep := func(n int) string {
		return `{"payload":` + strings.Repeat(`{"a":`, n-1) + "1" + strings.Repeat("}", n-1) + "}"
	}
	parse(t, deep(8))
	parse(t, `{"payload":{"$in":[`+many(100, "1")+`]}}`)
	parse(t, `{"payload":{"$or":[`+many(100, "1")+`]}}`)
	padded := func(n int) string { return `{"payload":"` + strings.Repeat("x", n-len(`{"payload":""}`)) + `"}` }
	parse(t, padded(filter.MaxBytes))
	for _, c := range []struct{ filter, pointer, message string }{
		{padded(filter.MaxBytes + 1), "", "larger than 8192 bytes"},
		{"{\"type\":\"\xff\"}", "", "UTF-8"},
		{``, "", "not JSON"},
		{`{"type":"x"} x`, "", "not JSON"},
		{`{"type":01}`, "", "not JSON"},
		{`[]`, "", "must be an object"},
		{`"x"`, "", "must be an object"},
		{`null`, "", "must be an object"},
		{`{"data":1}`, "/data", `is no field of an event (type, external_id, ordering_key, tags, payload). ` +
			`For a field of the payload write {"payload": {"data": …}}`},
		{`{"<a>\"\u0001":1}`, "/<a>\"\x01", `write {"payload": {"<a>\"\u0001": …}}`},
		{`{"$or":[{"type":"x"},{"topic":"x"}]}`, "/$or/1/topic", "no field of an event"},
		{`{"$not":{"topic":"x"}}`, "/$not/topic", "no field of an event"},
		{`{"$or":["x"]}`, "/$or/0", "must be an object with fields of the event"},
		{`{"$not":1}`, "/$not", "must be an object with fields of the event"},
		{`{"$eq":1}`, "/$eq", "belongs to a field"},
		{`{"payload":{}}`, "/payload", "has no condition"},
		{`{"payload":{"a":{"b":{}}}}`, "/payload/a/b", "has no condition"},
		{`{"payload":{"$not":{}}}`, "/payload/$not", "has no condition"},
		{`{"payload":{"a/b":{"c~d":[]}}}`, "/payload/a~1b/c~0d", "is an empty list"},
		{`{"payload":{"$or":[]}}`, "/payload/$or", "is an empty list"},
		{`{"payload":{"$in":[]}}`, "/payload/$in", "is an empty list"},
		{`{"payload":{"$and":{"a":1}}}`, "/payload/$and", "takes a list of conditions"},
		{`{"payload":{"$gt":true}}`, "/payload/$gt", "takes a number or a string"},
		{`{"payload":{"$lte":[1]}}`, "/payload/$lte", "takes a number or a string"},
		{`{"payload":{"$exists":1}}`, "/payload/$exists", "takes true or false"},
		{`{"payload":{"$in":{}}}`, "/payload/$in", "takes a list of values"},
		{`{"payload":{"$nin":null}}`, "/payload/$nin", "takes a list of values"},
		{`{"payload":{"$in":[1,[2]]}}`, "/payload/$in/1", "must be a string, a number, true, false or null"},
		{`{"payload":{"$contains":1}}`, "/payload/$contains", "takes a string, or a list of strings"},
		{`{"payload":{"$startsWith":["a",1]}}`, "/payload/$startsWith/1", "must be a string"},
		{`{"payload":[["a"]]}`, "/payload/0", "is a list in a list"},
		{`{"payload":{"$type":"x"}}`, "/payload/$type", "is no operator; the operators are $eq"},
		{`{"payload":{"a":{"$regex":"x"}}}`, "/payload/a/$regex", "take $startsWith, $endsWith or $contains"},
		{`{"payload":{"a":{"$ref":"b"}}}`, "/payload/a/$ref", "is not supported"},
		{`{"payload":{"a":{"$eq":{"$ref":"b"}}}}`, "/payload/a/$eq/$ref", "begins with $"},
		{`{"payload":{"a.$.b":1}}`, "/payload/a.$.b", "nest the names"},
		{`{"payload":{"a":1,"\u0061":2}}`, "/payload/a", "more than once"},
		{`{"type":"x","type":"y"}`, "/type", "more than once"},
		{`{"payload":{"$eq":{"a":1,"a":2}}}`, "/payload/$eq/a", "more than once"},
		{`{"payload":"\ud800"}`, "/payload", "half of a surrogate pair"},
		{`{"payload":{"\udc00":1}}`, "/payload", "half of a surrogate pair"},
		{`{"payload":1e1000000000}`, "/payload", "exponent of more than 9 digits"},
		{`{"payload":{"$in":[1,1E-1234567890]}}`, "/payload/$in/1", "exponent"},
		{deep(9), "/payload" + strings.Repeat("/a", 7), "nested more than 8 deep"},
		{`{"payload":{"$eq":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}}`, "/payload/$eq/0/0/0/0/0/0", "nested more than 8 deep"},
		{`{"payload":{"$in":[` + many(101, "1") + `]}}`, "/payload/$in", "more than 100 values"},
		{`{"payload":{"$eq":[` + many(101, "1") + `]}}`, "/payload/$eq", "more than 100 values"},
		{`{"payload":{"$or":[` + many(101, "1") + `]}}`, "/payload/$or", "more than 100 values"},
		{`{"type":"x","payload":{"$or":[` + many(100, "1") + `]}}`, "/payload/$or/99", "one condition more than the 100"},
	} {
		_, err := filter.Parse([]byte(c.filter))
		wrong := new(filter.Error)
		require.ErrorAs(t, err, &wrong, c.filter)
		require.Equal(t, c.pointer, wrong.Pointer, c.filter)
		require.Contains(t, wrong.Message, c.message, c.filter)
		require.True(t, strings.HasPrefix(err.Error(), c.pointer), "the places here are short")
	}
}

// What nobody sends is still no reason to fail: the payload of an event is checked elsewhere.
func TestPayloadThatIsNoJSON(t *testing.T) {
	t.Parallel()
	f := ofPayload(t, `{"a":{"b":1},"c":[1,{"d":2}]}`)
	for _, payload := range []string{
		"", " ", "{", "[", `"`, `{"a`, `{"a"`, `{"a":`, `{"a":{`, `{"a":{"b"`, `}`, `]}`, `{]`, `{"a":{"b":1]`, `{"c":[`, `{"c":[1`, `{"c":[1,{`, `{a:1}`,
		"{\"a\xff\":1}", `{"a":"\`, `{"a":"\u`, `{"a":"\u12"}`, `{,}`, `{"a":}`, `[,]`, `{"a":[[[[`, "\x00", `-`, `{"a":{"b":-}}`, `"\"`,
	} {
		require.False(t, f.Match(event(payload)), payload)
		require.NotEmpty(t, f.Explain(event(payload)).Failure.Pointer, payload)
		ofPayload(t, `{"$not":{"$contains":"x"}}`).Match(event(payload))
	}
	require.True(t, ofPayload(t, `{"a":{"$exists":true}}`).Match(event("{\"a\":\"\xff\"}")))
	require.False(t, ofPayload(t, `{"a":"�"}`).Match(event("{\"a\":\"\xff\"}")), "strings are compared by bytes")
}

func TestDeepPayload(t *testing.T) {
	t.Parallel()
	const depth = 512
	arrays := strings.Repeat("[", depth) + "7" + strings.Repeat("]", depth)
	require.True(t, ofPayload(t, "7").Match(event(arrays)))
	require.False(t, ofPayload(t, "8").Match(event(arrays)))
	objects := strings.Repeat(`{"a":`, depth) + "7" + strings.Repeat("}", depth)
	require.True(t, ofPayload(t, `{"a":{"a":{"a":{"b":{"$exists":false}}}}}`).Match(event(objects)))
}

// A filter looks at so much of an event, and then matches rather than loses it.
func TestTooMuchWork(t *testing.T) {
	t.Parallel()
	numbers := func(n int) string { return `{"a":[` + strings.Repeat("1,", n-1) + `1]}` }
	for _, c := range []struct{ filter, few, many string }{
		{`{"a":2}`, numbers(10_000), numbers(filter.MaxWork)},
		{`{"a":{"$not":{"$exists":true,"$ne":2}}}`, numbers(10_000), numbers(filter.MaxWork)},
		{`{"a":{"$contains":"y"}}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, `{"a":"` + strings.Repeat("x", 4<<20) + `"}`},
		{`{"a":{"b":{"$in":["x"]}}}`, `{"a":[` + strings.Repeat(`{"b":"y"},`, 1000) + `1]}`, `{"a":[` + strings.Repeat(`{"b":"y"},`, 40_000) + `1]}`},
	} {
		f := ofPayload(t, c.filter)
		require.False(t, f.Match(event(c.few)), c.filter)
		require.Equal(t, filter.Explanation{Matched: true, Undecided: true}, f.Explain(event(c.many)), c.filter)
		require.True(t, f.Match(event(c.many)))
		require.True(t, ofPayload(t, `{"$not":`+c.filter+`}`).Match(event(c.many)), "also where it negates")
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 300)
	for _, c := range []struct {
		filter, payload string
		want            filter.Failure
		words           string
	}{
		{
			`{"payload":{"a":1,"b":{"$gte":100}}}`, `{"a":1,"b":17}`,
			filter.Failure{Pointer: "/payload/b/$gte", Operator: "$gte", Wanted: "100", Path: "/payload/b", Found: "17"},
			`/payload/b is 17; the filter wants $gte 100`,
		},
		{
			`{"payload":{"b":{"$gte":100},"a":2}}`, `{"a":1,"b":17}`,
			filter.Failure{Pointer: "/payload/b/$gte", Operator: "$gte", Wanted: "100", Path: "/payload/b", Found: "17"},
			`/payload/b is 17; the filter wants $gte 100`,
		},
		{
			`{"payload":{"$not":{"a":1},"b":3}}`, `{"a":1,"b":17}`,
			filter.Failure{Pointer: "/payload/$not", Operator: "$not", Wanted: `{"a":1}`, Path: "/payload", Found: `{"a":1,"b":17}`},
			`/payload is {"a":1,"b":17}; the filter wants $not {"a":1}`,
		},
		{
			`{"type":"x","payload":1}`, `2`,
			filter.Failure{Pointer: "/type", Wanted: `"x"`, Path: "/type", Found: `"order.paid"`},
			`/type is "order.paid"; the filter wants "x"`,
		},
		{
			`{"tags":"x"}`, `2`,
			filter.Failure{Pointer: "/tags", Wanted: `"x"`, Path: "/tags", Missing: true},
			`/tags is missing; the filter wants "x"`,
		},
		{
			`{"payload":{"a/b":{"c":{"$in":["x"]}}}}`, `{"a/b":{"d":1}}`,
			filter.Failure{Pointer: "/payload/a~1b/c/$in", Operator: "$in", Wanted: `["x"]`, Path: "/payload/a~1b/c", Missing: true},
			`/payload/a~1b/c is missing; the filter wants $in ["x"]`,
		},
		{
			`{"payload":{"a":{"$gt":5}}}`, `{"a":[1,2]}`,
			filter.Failure{Pointer: "/payload/a/$gt", Operator: "$gt", Wanted: "5", Path: "/payload/a", Found: "[1,2]", Of: 2},
			`/payload/a is [1,2], and none of the 2 elements meets $gt 5`,
		},
		{
			`{"payload":{"a":{"b":"x"}}}`, `{"a":[{"b":"y"},{"b":"z"}]}`,
			filter.Failure{Pointer: "/payload/a/b", Wanted: `"x"`, Path: "/payload/a/0/b", Found: `"y"`, Of: 2},
			`/payload/a/0/b is "y", and none of the 2 elements meets "x"`,
		},
		{
			`{"payload":{"a":{"b":"x"}}}`, `{"a":[]}`,
			filter.Failure{Pointer: "/payload/a/b", Wanted: `"x"`, Path: "/payload/a", Found: `[]`},
			`/payload/a is []; the filter wants "x"`,
		},
		{
			`{"payload":{"a":{"$neq":"x"}}}`, `{"a":["x","y"]}`,
			filter.Failure{Pointer: "/payload/a/$neq", Operator: "$neq", Wanted: `"x"`, Path: "/payload/a", Found: `["x","y"]`},
			`/payload/a is ["x","y"]; the filter wants $neq "x"`,
		},
		{
			`{"$or":[{"payload":1},{"type":"x"}]}`, `{"a":2}`,
			filter.Failure{Pointer: "/$or", Operator: "$or", Wanted: `[{"payload":1},{"type":"x"}]`},
			`the event does not meet $or [{"payload":1},{"type":"x"}]`,
		},
		{
			`{"$and":[{"type":"order.paid"},{"payload":{"a":["x","y"]}}]}`, `{"a":["x"]}`,
			filter.Failure{Pointer: "/$and/1/payload/a/1", Wanted: `"y"`, Path: "/payload/a", Found: `["x"]`, Of: 1},
			`/payload/a is ["x"]; the filter wants "y"`,
		},
		{
			`{"payload":"` + long + `"}`, `"x` + long + `"`,
			filter.Failure{
				Pointer: "/payload", Wanted: `"` + strings.Repeat("é", 98) + "…", Path: "/payload", Found: `"x` + strings.Repeat("é", 97) + "…",
			},
			`/payload is "x` + strings.Repeat("é", 97) + `…; the filter wants "` + strings.Repeat("é", 98) + "…",
		},
	} {
		e := filter.NewEvent(filter.Fields{Type: "order.paid", Payload: []byte(c.payload)})
		f := parse(t, c.filter)
		for range 2 {
			require.Equal(t, filter.Explanation{Failure: c.want}, f.Explain(e), c.filter)
		}
		require.Equal(t, c.words, c.want.String())
		require.LessOrEqual(t, len(c.want.Found), filter.MaxExcerpt)
	}
}

func TestStored(t *testing.T) {
	t.Parallel()
	require.Nil(t, filter.Stored(""))
	f := filter.Stored(`{"type":"x"}`)
	require.Equal(t, parse(t, `{ "type" : "x" }`), f)
	require.False(t, f.Match(event("1")))
	later := filter.Stored(`{"payload":{"$later":1}}`)
	require.JSONEq(t, `{"payload":{"$later":1}}`, later.Text())
	require.True(t, later.Match(event("1")))
}

// The text of a filter is JSON, so that it can be stored and read again.
func TestTextIsTheSameFilter(t *testing.T) {
	t.Parallel()
	f := parse(t, `{ "payload" : {"a" : {"$in":[1.0, "\u0041"]}} }`)
	require.True(t, json.Valid([]byte(f.Text())))
	require.Equal(t, f.Text(), parse(t, f.Text()).Text())
}
