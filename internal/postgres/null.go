package postgres

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// IsNoRows reports a query that found no row.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Optional returns t, or nil (null in SQL) if it is zero.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// OptionalText returns text, or nil (null in SQL) if it is empty.
func OptionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// OrZero returns the time in UTC, or the zero time for null.
func OrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// JSONBytes returns the JSON of a value that can always be marshalled.
func JSONBytes(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // maps of strings always marshal
		return []byte("{}")
	}
	return text
}

// NonNil returns b, or empty bytes if it is nil, which would be null in SQL.
func NonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// NonNilSlice returns list, or an empty one if it is nil.
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
