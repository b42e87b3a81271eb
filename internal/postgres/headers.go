package postgres

import (
	"encoding/json"
	"errors"
)

// HeadersColumn is the stored form of an event's headers: a JSON object, or nil (null in SQL) for none.
func HeadersColumn(headers map[string]string) []byte {
	if len(headers) == 0 {
		return nil
	}
	return JSONBytes(headers)
}

// EventHeaders are the headers of a stored form; nil for null.
func EventHeaders(column []byte) (headers map[string]string, err error) {
	if column == nil {
		return headers, nil
	}
	if err := json.Unmarshal(column, &headers); err != nil {
		return nil, errEventHeaders
	}
	return headers, nil
}

// errEventHeaders replaces the decoder's error, which could quote the headers.
var errEventHeaders = errors.New("not a JSON object of strings")
