package postgres

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// RowsOf describes the rows of a batched statement, which gets them as one array for each
// column. R is what a row is made of. The first column is always whole, and says how many
// rows there are.
type RowsOf[R any] []column[R]

// column is a column of such rows.
type column[R any] struct {
	name   string // "id uuid": in the statement, with its type
	Values func(rows []R) any
}

// Whole is the first column of rows.
func Whole[R, V any](name string, of func(R) V) column[R] {
	return column[R]{name, func(rows []R) any { return ValuesOf(rows, of) }}
}

// Each is a column. Most columns of a group commit hold the same value in every row, and
// PostgreSQL takes an array apart value by value: then the array has that value alone.
func Each[R any, V comparable](name string, of func(R) V) column[R] {
	return column[R]{name, func(rows []R) any { return onceFunc(rows, of, func(a, b V) bool { return a == b }) }}
}

// EachOptional is each for values that may be null.
func EachOptional[R any, V comparable](name string, of func(R) *V) column[R] {
	return column[R]{name, func(rows []R) any {
		return onceFunc(rows, of, func(a, b *V) bool { return a == b || a != nil && b != nil && *a == *b })
	}}
}

// EachBytes is each for bytes; nil is null.
func EachBytes[R any](name string, of func(R) []byte) column[R] {
	return column[R]{name, func(rows []R) any {
		return onceFunc(rows, of, func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
	}}
}

// Query is a query for the rows; its parameters begin with the given one.
func (columns RowsOf[R]) Query(parameter int) string {
	var values, arrays, names strings.Builder
	for i, c := range columns {
		name, kind, _ := strings.Cut(c.name, " ")
		array := fmt.Sprintf("$%d::%s[]", parameter+i, kind)
		value := name
		if i > 0 {
			// An array that is whole has no element 0.
			value = fmt.Sprintf(", coalesce(%s, (%s)[0]) as %s", name, array, name)
			array, name = ", "+array, ", "+name
		}
		values.WriteString(value)
		arrays.WriteString(array)
		names.WriteString(name)
	}
	return fmt.Sprintf("select %s from unnest(%s) a (%s)", &values, &arrays, &names)
}

// Args are the parameters of query for some rows.
func (columns RowsOf[R]) Args(rows []R) []any {
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = c.Values(rows)
	}
	return args
}

func ValuesOf[R, V any](rows []R, of func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return values
}

// onceFunc is a column's array: element 0 alone, if all values are equal.
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
