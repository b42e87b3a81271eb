package postgres

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// selectRows is a query for the rows that a statement gets as arrays, one for each column, from a
// parameter on. A column is its name and its type. One that once has made a single value has
// that in every row; the first column is always whole, and says how many rows there are.
//
// PostgreSQL takes each array apart by itself, value by value, and most columns of a group commit
// hold the same again and again.
func selectRows(parameter int, columns ...string) string {
	var values, arrays, names strings.Builder
	for i, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
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

// once is a column as a parameter of selectRows: a single value, if all are equal.
func once[T comparable](column []T) any {
	return onceFunc(column, func(a, b T) bool { return a == b })
}

func onceOptional[T comparable](column []*T) any {
	return onceFunc(column, func(a, b *T) bool { return a == b || a != nil && b != nil && *a == *b })
}

func onceBytes(column [][]byte) any {
	return onceFunc(column, func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
}

func onceFunc[T any](column []T, equal func(a, b T) bool) any {
	if len(column) == 0 {
		return column
	}
	for _, value := range column[1:] {
		if !equal(value, column[0]) {
			return column
		}
	}
	return pgtype.Array[T]{Elements: column[:1], Dims: []pgtype.ArrayDimension{{Length: 1, LowerBound: 0}}, Valid: true}
}
