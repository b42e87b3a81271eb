package postgres

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// RowsOf describes the rows of a batched statement, which takes one array for each column. R is
// the Go value of a row. The array of the first column is always complete: its length is the
// number of rows.
type RowsOf[R any] []Column[R]

// Column is one column of the rows.
type Column[R any] struct {
	name   string // "id uuid": in the statement, with its type
	Values func(rows []R) any
}

// Whole is the first column of rows.
func Whole[R, V any](name string, of func(R) V) Column[R] {
	return Column[R]{name, func(rows []R) any { return ValuesOf(rows, of) }}
}

// Each is any other column. Most columns of a group commit have the same value in every row, and
// PostgreSQL unpacks arrays value by value: if all values are equal, the array holds the value once.
func Each[R any, V comparable](name string, of func(R) V) Column[R] {
	return Column[R]{name, func(rows []R) any { return onceFunc(rows, of, func(a, b V) bool { return a == b }) }}
}

// EachOptional is Each for values that may be null.
func EachOptional[R any, V comparable](name string, of func(R) *V) Column[R] {
	return Column[R]{name, func(rows []R) any {
		return onceFunc(rows, of, func(a, b *V) bool { return a == b || a != nil && b != nil && *a == *b })
	}}
}

// EachBytes is Each for bytes; nil is null.
func EachBytes[R any](name string, of func(R) []byte) Column[R] {
	return Column[R]{name, func(rows []R) any {
		return onceFunc(rows, of, func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
	}}
}

// Query is a select of the rows; parameter is the number of its first parameter.
func (columns RowsOf[R]) Query(parameter int) string {
	var values, arrays, names strings.Builder
	for i, c := range columns {
		name, kind, _ := strings.Cut(c.name, " ")
		array := fmt.Sprintf("$%d::%s[]", parameter+i, kind)
		value := name
		if i > 0 {
			// Only an array that holds one value for all rows has an element 0.
			value = fmt.Sprintf(", coalesce(%s, (%s)[0]) as %s", name, array, name)
			array, name = ", "+array, ", "+name
		}
		values.WriteString(value)
		arrays.WriteString(array)
		names.WriteString(name)
	}
	return fmt.Sprintf("select %s from unnest(%s) a (%s)", &values, &arrays, &names)
}

// Args are the parameters of Query for the rows.
func (columns RowsOf[R]) Args(rows []R) []any {
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = c.Values(rows)
	}
	return args
}

// ValuesOf returns a value of each row.
func ValuesOf[R, V any](rows []R, of func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return values
}

// onceFunc returns a column's array: only an element 0, if all values are equal.
func onceFunc[R, V any](rows []R, of func(R) V, equal func(a, b V) bool) any {
	if len(rows) == 0 {
		return []V(nil)
	}
	first := of(rows[0])
	for i, r := range rows[1:] {
		value := of(r)
		if equal(value, first) {
			continue
		}
		values := make([]V, len(rows))
		for k := range i + 1 {
			values[k] = first // equal, if not the same
		}
		values[i+1] = value
		for k := i + 2; k < len(rows); k++ {
			values[k] = of(rows[k])
		}
		return values
	}
	return pgtype.Array[V]{Elements: []V{first}, Dims: []pgtype.ArrayDimension{{Length: 1, LowerBound: 0}}, Valid: true}
}
