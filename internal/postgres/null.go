package postgres

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// IsNoRows reports a query that found no row.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Optional is nil for the zero time: SQL's null.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// OrZero is the zero time for SQL's null.
func OrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// JSONBytes is JSON of what always has one.
func JSONBytes(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // maps of strings always marshal
		return []byte("{}")
	}
	return text
}

// NonNil is empty for nil: not null.
func NonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// NonNilSlice is empty for nil.
func NonNilSlice(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// NonNilMap returns m, or an empty map if it is nil.
func NonNilMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
