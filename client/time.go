package client

import "time"

// Time is a time of the API: RFC 3339, UTC, with microseconds. The zero Time is null.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(make([]byte, 0, 32), `"2006-01-02T15:04:05.000000Z"`), nil
}
