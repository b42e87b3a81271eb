package catalogue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/jsonref"
	"github.com/everpost/everpost/internal/webhook"
)

// Complete gives an event without an ordering key the one at its type's pointer; "" for none. What waits for a time gets none.
func Complete(e *webhook.NewEvent, pointer string) {
	if pointer != "" && e.OrderingKey == "" && e.DeliverAt.IsZero() {
		e.OrderingKey = OrderingKey(e.Payload, pointer)
	}
}

// OrderingKey is what a JSON pointer (RFC 6901) points to in a payload, as an ordering key; "" if that is not a text or a number that can be one. Of
// repeated names it takes the last, as schemas do. It reads the payload once for each part of the pointer, and less of it each time.
func OrderingKey(payload []byte, pointer string) string {
	value := json.RawMessage(bytes.TrimSpace(payload))
	for _, part := range strings.Split(pointer, "/")[1:] {
		if value = member(value, jsonref.Unescaped(part)); value == nil {
			return ""
		}
	}
	var key string
	switch {
	case len(value) == 0:
		return ""
	case value[0] == '"':
		if json.Unmarshal(value, &key) != nil {
			return ""
		}
	case value[0] == '-' || '0' <= value[0] && value[0] <= '9':
		key = string(value)
	}
	if !webhook.ValidOrderingKey(key) {
		return ""
	}
	return key
}

// member is a member of an object, or an element of an array; nil if there is none.
func member(of json.RawMessage, name string) json.RawMessage {
	switch {
	case len(of) == 0:
	case of[0] == '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(of, &members) == nil {
			return members[name]
		}
	case of[0] == '[':
		var elements []json.RawMessage
		if json.Unmarshal(of, &elements) == nil && jsonref.IsIndex(name, len(elements)) {
			at, _ := strconv.Atoi(name)
			return elements[at]
		}
	}
	return nil
}
