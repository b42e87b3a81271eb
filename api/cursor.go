package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/everpost/everpost/internal/webhook"
)

// A cursor is the position at which a page of a list ended: 8 bytes of a hash over the position
// and the identity of the list (its name, tenant and filters), then the position, in base64url.
// The hash is not secret: a forged position only selects another part of the caller's own list. It
// detects the accidental use of a cursor with another list.
const (
	cursorHash = 8
	maxCursor  = 256 // characters
)

func cursorEncoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// encodeCursor returns the cursor of a position in the list that binding identifies.
func encodeCursor(binding, position string) string {
	sum := cursorSum(binding, position)
	return cursorEncoding().EncodeToString(append(sum[:cursorHash:cursorHash], position...))
}

// decodeCursor returns the position of a cursor that encodeCursor made with the same binding. The
// error is a phrase for an API error.
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

// cursorSum hashes the binding with its length, so that different pairs of binding and position
// have different input.
func cursorSum(binding, position string) [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64(nil, uint64(len(binding)))
	text = append(text, binding...)
	return sha256.Sum256(append(text, position...))
}

// idPosition converts an id to a position, and idAfter converts it back.
func idPosition(id [16]byte) string { return string(id[:]) }

// searchedPosition is the position of the last row that a list has looked at; "" for none.
func searchedPosition(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return idPosition(id)
}

func idAfter(position string) (id [16]byte) {
	copy(id[:], position)
	return id
}

// numberPosition converts an attempt's number to a position, and numberAfter converts it back.
func numberPosition(n int) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // numbers count from 1
}

func numberAfter(position string) int {
	if len(position) != 8 {
		return 0
	}
	return int(binary.BigEndian.Uint64([]byte(position))) //nolint:gosec // made by numberPosition
}

// attemptPosition converts an attempt's place among those of several deliveries to a position, and attemptAfter converts it back.
func attemptPosition(a webhook.DeliveryAttempt) string {
	return idPosition(a.DeliveryID) + numberPosition(a.Run) + numberPosition(a.Number)
}

func attemptAfter(position string) (a webhook.DeliveryAttempt) {
	if len(position) != len(attemptPosition(a)) {
		return a
	}
	a.DeliveryID = idAfter(position)
	a.Run, a.Number = numberAfter(position[16:24]), numberAfter(position[24:])
	return a
}

// pageOf returns the page of a list that starts after a position.
func pageOf(limit int, position string) webhook.Page {
	return webhook.Page{Limit: limit, After: idAfter(position)}
}
