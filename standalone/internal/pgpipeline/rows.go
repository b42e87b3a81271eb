package pgpipeline

import (
	"database/sql/driver"
	"fmt"
	"io"
)

// rows are those of a query, read already.
type rows struct {
	answer

	next int
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(into []driver.Value) error {
	if r.next == len(r.values) {
		return io.EOF
	}
	copy(into, r.values[r.next])
	r.next++
	return nil
}

// value is what pgx made of a column as one of the few types that database/sql knows.
func value(v any) (driver.Value, error) {
	switch v := v.(type) {
	case int32:
		return int64(v), nil
	case int16:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case driver.Valuer:
		return v.Value() //nolint:wrapcheck // the caller says of which column
	}
	if !driver.IsValue(v) {
		return nil, fmt.Errorf("values of type %T are not supported", v)
	}
	return v, nil
}
