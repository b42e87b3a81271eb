package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/filter"
)

// order is an event of about the given number of bytes, as shops send them.
func order(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"id":"ord_1029384756","object":"order","created":1735689600,"livemode":true,"status":"paid","currency":"eur",` +
		`"amount":129.90,"customer":{"id":"cus_5566","email":"someone@example.com","tier":"gold","address":{"country":"DE","city":"Köln"}},` +
		`"metadata":{"source":"shop","campaign":"winter"},"items":[`)
	for i := 0; b.Len() < size-150; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"sku-%05d","title":"A thing with a \"name\"","quantity":%d,"price":%d.50,"tags":["a","b"]}`, i, i%7, i%90)
	}
	b.WriteString(`],"note":"","total_details":{"discount":0,"shipping":4.90,"tax":20.74}}`)
	return []byte(b.String())
}

func parsedAll(b *testing.B, texts ...string) (all []*filter.Filter) {
	b.Helper()
	for _, text := range texts {
		f, err := filter.Parse([]byte(text))
		require.NoError(b, err)
		all = append(all, f)
	}
	return all
}

// BenchmarkThousandEndpoints is what an event of 1 KiB costs that 1,000 endpoints filter, the walk included. The bar is 0.5 ms.
func BenchmarkThousandEndpoints(b *testing.B) {
	var texts []string
	for i := range 1000 {
		texts = append(texts, []string{
			fmt.Sprintf(`{"payload":{"customer":{"id":"cus_%04d"}}}`, i),
			fmt.Sprintf(`{"payload":{"amount":{"$gte":%d},"currency":{"$in":["eur","usd"]}}}`, i),
			fmt.Sprintf(`{"payload":{"customer":{"address":{"country":{"$in":["DE","FR","IT"]}}},"status":{"$ne":"void"},"items":{"sku":"sku-%05d"}}}`, i),
			fmt.Sprintf(`{"type":{"$startsWith":"order."},"payload":{"$or":[{"metadata":{"source":"app-%d"}},{"total_details":{"discount":{"$gt":0}}}]}}`, i),
		}[i%4])
	}
	filters, payload := parsedAll(b, texts...), order(1024)
	b.ReportAllocs()
	for b.Loop() {
		e := filter.NewEvent(filter.Fields{Type: "order.paid", Payload: payload})
		for _, f := range filters {
			f.Match(e)
		}
	}
}

// largest is a filter with 100 conditions of which none holds.
func largest(b *testing.B, format string) *filter.Filter {
	b.Helper()
	parts := make([]string, filter.MaxConditions)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return parsedAll(b, `{"payload":{"$or":[`+strings.Join(parts, ",")+`]}}`)[0]
}

// BenchmarkLargest has the largest filters and payloads. The bar is 1 ms without the walk; what is worse than the second is undecided.
func BenchmarkLargest(b *testing.B) {
	const mib = 1 << 20
	for _, c := range []struct {
		name, format string
		payload      []byte
	}{
		{"order 256 KiB, fields", `{"total_details":{"tax":%d.5}}`, order(mib / 4)},
		{"order 256 KiB, items", `{"items":{"sku":"x%d"}}`, order(mib / 4)},
		{"order 4 MiB, fields", `{"total_details":{"discount":%d.5}}`, order(4 * mib)},
		{"order 4 MiB, items", `{"items":{"sku":"x%d"}}`, order(4 * mib)},
		{"array of numbers", `{"$gt":1%d}`, []byte("[" + strings.Repeat("1,", 2*mib-1) + "1]")},
		{"text", `{"$contains":"y%d"}`, []byte(`"` + strings.Repeat("x", 4*mib) + `"`)},
		{"text of parts", `{"$contains":"xxxxy%d"}`, []byte(`"` + strings.Repeat("xxxxy", mib/20) + `"`)},
		{"names", `{"a%d":1}`, names(4 * mib)},
		{"digits", `{"$gt":1e9%06d}`, []byte(strings.Repeat("1", 4*mib))},
	} {
		f := largest(b, c.format)
		b.Run(c.name+"/filter", func(b *testing.B) {
			e := filter.NewEvent(filter.Fields{Type: "order.paid", Payload: c.payload})
			f.Match(e)
			for b.Loop() {
				f.Match(e)
			}
		})
		b.Run(c.name+"/walk", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.payload)))
			for b.Loop() {
				f.Match(filter.NewEvent(filter.Fields{Type: "order.paid", Payload: c.payload}))
			}
		})
	}
}

func names(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"b":1`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `,"%x":1`, i)
	}
	b.WriteByte('}')
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"payload":{"customer":{"address":{"country":{"$in":["DE","FR","IT"]}}},"status":{"$ne":"void"},"items":{"sku":"x"}}}`)
	for b.Loop() {
		if _, err := filter.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
