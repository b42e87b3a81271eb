package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/everpost/everpost/internal/webhook"
)

// A cursor is where a page of a list ended: 8 bytes of a hash over that position
// and what the list is (its name, tenant and filters), and the position itself, as
// base64url. The hash is no secret and need not be: a forged position only chooses
// where in the caller's own list to go on. It keeps a cursor from being used, by
// mistake, with another list.
const (
	cursorHash = 8
	maxCursor  = 256 // characters
)

func cursorEncoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// encodeCursor makes the cursor of a position in the list that binding names.
func encodeCursor(binding, position string) string {
	sum := cursorSum(binding, position)
	return cursorEncoding().EncodeToString(append(sum[:cursorHash:cursorHash], position...))
}

// decodeCursor is the position of a cursor that encodeCursor made for the same
// binding; anything else is an error that is a phrase for people.
func decodeCursor(binding, cursor string) (position string, err error) {
	if len(cursor) <= maxCursor {
		raw, err := cursorEncoding().DecodeString(cursor)
		if err == nil && len(raw) > cursorHash {
			position = string(raw[cursorHash:])
			if sum := cursorSum(binding, position); bytes.Equal(raw[:cursorHash], sum[:cursorHash]) {
				return position, nil
			}
		}
	}
	return "", errors.New("is not a next_cursor of this list with these filters")
}

// cursorSum hashes the binding with its length, so that no binding and position
// can be read as another pair.
func cursorSum(binding, position string) [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64(nil, uint64(len(binding)))
	text = append(text, binding...)
	return sha256.Sum256(append(text, position...))
}

// idPosition is an id as a position, and idAfter the way back.
func idPosition(id [16]byte) string { return string(id[:]) }

func idAfter(position string) (id [16]byte) {
	copy(id[:], position)
	return id
}

// numberPosition is an attempt's number as a position, and numberAfter the way back.
func numberPosition(n int) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // numbers count from 1
}

func numberAfter(position string) int {
	if len(position) != 8 {
		return 0
	}
	return int(binary.BigEndian.Uint64([]byte(position))) //nolint:gosec // made by numberPosition
}

// pageOf asks the domain for a page of a list.
func pageOf(limit int, position string) webhook.Page {
	return webhook.Page{Limit: limit, After: idAfter(position)}
}
