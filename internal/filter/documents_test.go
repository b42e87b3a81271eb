package filter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
)

// What the documents of other products say about their filters holds for the same filters here. There a filter is about the body (Hookdeck),
// the payload (Convoy) or {"data": …} (Outpost); here it is {"payload": …}.
func TestDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	const gift = `{"product":{"title":"Gift Card","tags":["gift","something","another"],"inventory":5}}`
	for name, cases := range map[string][]same{
		// github.com/hookdeck/simple-json-match: readme.md.
		"Hookdeck": {
			{`{"type":"order/created","order":{"id":123}}`, `{"type":"order/created"}`, true},
			{`{"product":{"title":"A product","inventory":0}}`, `{"product":{"inventory":0}}`, true},
			{gift, `{"product":{"tags":"gift"}}`, true},
			{gift, `{"product":{"tags":["gift","something"]}}`, true},
			{gift, `{"product":{"tags":["gift","other"]}}`, false},
			{`{"order":{"id":123,"items":[{"id":456,"title":"My product"}]}}`, `{"order":{"items":{"id":456}}}`, true},
			{gift, `{"product":{"inventory":{"$lte":10}}}`, true},
			{gift, `{"product":{"inventory":{"$or":[1,5]}}}`, true},
			{`{"hello":"world"}`, `{"$or":[{"hello":"johny"},{"hello":"mark"}]}`, false},
			{`{"inventory":0}`, `{"old_inventory":{"$exist":false}}`, true},
			{`{"inventory":0}`, `{"$not":{"inventory":1}}`, true},
			// The table of operators.
			{`{"a":[1,{"b":2}]}`, `{"a":{"$eq":[1,{"b":2}]}}`, true},
			{`{"a":[1,2]}`, `{"a":{"$neq":[1,3]}}`, true},
			{`{"a":"c"}`, `{"a":{"$gte":"b"}}`, true},
			{`{"a":"some-text"}`, `{"a":{"$in":"text"}}`, true},
			{`{"a":"some-text"}`, `{"a":{"$nin":"some"}}`, false},
			{`{"a":"some-text"}`, `{"a":{"$in":["some","text"]}}`, false},
			{`{"a":123}`, `{"a":{"$in":[123,456]}}`, true},
			{`{"a":["test","something"]}`, `{"a":{"$nin":"test"}}`, false},
			{`{"a":"some-text"}`, `{"a":{"$startsWith":["some","else"]}}`, true},
			{`{"a":"some-text"}`, `{"a":{"$endsWith":["some","else"]}}`, false},
			{`{"a":null}`, `{"a":{"$exist":true}}`, true},
		},
		// hookdeck.com/docs/filters.
		"Hookdeck's guide": {
			{`{"tags":["important","urgent"]}`, `{"tags":["important","urgent"]}`, true},
			{`{"event_type":"new_order"}`, `{"event_type":{"$in":"order"}}`, true},
			{`{"roles":["admin"]}`, `{"roles":{"$in":"admin"}}`, true},
			{`{"tags":["gift","x"]}`, `{"tags":{"$eq":["gift"]}}`, false},
			{`{"tags":["gift"]}`, `{"tags":{"$eq":["gift"]}}`, true},
			{`{"deleted_at":null}`, `{"deleted_at":{"$exist":false}}`, false},
			{`{"url":"https://example.com"}`, `{"url":{"$exist":true,"$startsWith":"https://"}}`, true},
			{`{"amount":100}`, `{"amount":{"$and":[{"$gte":100},{"$lte":500}]}}`, true},
			{`{"event":{"type":"message","subtype":"pinned"},"team_id":"team3"}`,
				`{"event":{"type":"message"},"$not":{"$or":[{"event":{"subtype":{"$or":["edit","deleted"]}}},{"team_id":{"$or":["team1","team2"]}}]}}`, true},
			{`{"event":{"type":"message","subtype":"deleted"},"team_id":"team3"}`,
				`{"event":{"type":"message"},"$not":{"$or":[{"event":{"subtype":{"$or":["edit","deleted"]}}},{"team_id":{"$or":["team1","team2"]}}]}}`, false},
			{`"/webhooks/x"`, `{"$in":"/webhooks"}`, true},
			{`"/health"`, `{"$not":{"$in":"/health"}}`, false},
		},
		// github.com/hookdeck/outpost: docs/pages/features/filter.mdx.
		"Outpost": {
			{`{"status":"paid","currency":"usd"}`, `{"status":"paid","currency":"usd"}`, true},
			{`{"customer":{"tier":"premium"}}`, `{"customer":{"tier":"premium"}}`, true},
			{`{"tags":["urgent","support"]}`, `{"tags":"urgent"}`, true},
			{`{"amount":499.99}`, `{"amount":{"$gte":100,"$lt":500}}`, true},
			{`{"amount":500}`, `{"amount":{"$gte":100,"$lt":500}}`, false},
			{`{"status":"processing"}`, `{"status":{"$in":["pending","processing","completed"]}}`, true},
			{`{"email":"a@example.com"}`, `{"email":{"$endsWith":"@example.com"}}`, true},
			{`{"discount_code":"x"}`, `{"discount_code":{"$exist":true}}`, true},
			{`{"status":"refunded"}`, `{"status":{"$not":{"$in":["cancelled","refunded"]}}}`, false},
			{`{"status":"active","amount":100}`, `{"$and":[{"status":"active"},{"amount":{"$gte":100}}]}`, true},
			{`{"status":"shipped"}`, `{"$or":[{"status":"paid"},{"status":"shipped"}]}`, true},
			{`{"time":"2025-01-15T12:00:00Z"}`, `{"time":{"$gte":"2025-01-01T00:00:00Z","$lt":"2025-02-01T00:00:00Z"}}`, true},
		},
		// getconvoy.io/docs/product-manual/filters.
		"Convoy": {
			{`{"event_type":"created"}`, `{"event_type":"created"}`, true},
			{`{"event":{"type":"created"}}`, `{"event":{"type":"created"}}`, true},
			{`{"dish":{"ingredients":["rice","beans"]}}`, `{"dish":{"ingredients":"rice"}}`, true},
			{`{"event":"created"}`, `{"event":{"$neq":"created"}}`, false},
			{`{"cities":["lagos","ibadan"],"type":"weekly"}`, `{"$or":[{"cities":"london"},{"type":"weekly"}]}`, true},
			{`{"age":12,"cities":["lagos","ibadan"],"type":"monthly"}`, `{"$and":[{"age":{"$gte":10}},{"$or":[{"type":"weekly"},{"cities":"lagos"}]}]}`, true},
			{`{"operation":"created"}`, `{"operation":{"$in":["created","deleted"]}}`, true},
			{`{"operation":"created"}`, `{"operation":{"$nin":["updated","truncated"]}}`, true},
			{`{"age":2}`, `{"age":{"$gt":1}}`, true},
			{`{"person":{"age":12}}`, `{"person":{"age":{"$exist":true}}}`, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range cases {
				c.check(t)
			}
		})
	}
}

// Where Everpost departs from those documents. What is not the same is refused when it is saved, but for $eq with an array.
func TestDeparturesFromDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ why, filter string }{
		{"Hookdeck: a reference to another field", `{"updated_at":{"$ref":"created_at"}}`},
		{"Hookdeck: a reference within an operator", `{"inventory":{"$lte":{"$ref":"old_inventory"}}}`},
		{"Hookdeck: a reference within an equality", `{"updated_at":{"$neq":{"$ref":"created_at"}}}`},
		{"Hookdeck: an empty object matches every object", `{"a":{}}`},
		{"Convoy: regular expressions", `{"event_type":{"$regex":"^es_[a-zA-Z]+$"}}`},
		{"Convoy: places in arrays", `{"$.venues.$.lagos":"lekki"}`},
		{"Convoy: places in arrays, within", `{"data.$.venue":"test"}`},
	} {
		_, err := filter.Parse([]byte(`{"payload":` + c.filter + `}`))
		require.Error(t, err, c.why)
	}
	for _, c := range []same{
		{`[1,2,3]`, `{"$eq":3}`, true},             // simple-json-match compares $eq with the whole array only
		{`{"a":[1,2]}`, `{"a":{"$neq":1}}`, false}, // the same
		{`{"a":[1,2]}`, `{"a":{"$gt":1}}`, true},   // simple-json-match has no order for arrays
		{`{"a":["xy"]}`, `{"a":{"$startsWith":"x"}}`, true},
		{`{"a":"1"}`, `{"a":1}`, false},                     // simple-json-match compares with ==, which coerces
		{`{"person":{"age":1}}`, `{"person.age":1}`, false}, // Convoy takes a dot for a level
		// simple-json-match wants one element for all; here $or looks for its own.
		{`{"a":[{"b":1},{"c":1}]}`, `{"a":{"b":1,"$or":[{"c":1},{"c":2}]}}`, true},
	} {
		c.check(t)
	}
}
