package egress

import (
	"bytes"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// add adds a line to the head. Beyond the bound of what is stored it costs no memory.
func (h *responseHead) add(line []byte) {
	name, value, found := bytes.Cut(line, []byte{':'})
	value = bytes.Trim(value, blanks)
	isTarget := found && h.stored[locationHeader] == nil && bytes.EqualFold(name, []byte(locationHeader))
	if isTarget && !h.hasRoom(line) { // where a redirect leads is worth its place
		value, line = shortTarget(value), nil
	}
	if !found || len(line) > maxHeadLine || !isName(name) || !isValue(value) {
		h.irregular = true
		if looksLikeFraming(line) {
			h.framingFields++
		}
		return
	}
	h.note(name, value)
	if !isTarget && !h.hasRoom(line) {
		return
	}
	canonical := http.CanonicalHeaderKey(string(name))
	if isSecretOfReceiver(canonical) {
		return
	}
	h.storedLines++
	h.storedBytes += storedSize(line)
	h.stored[canonical] = append(h.stored[canonical], string(value))
}

// storedSize is what a line takes of the room for stored fields: at least its fieldSize.
func storedSize(line []byte) int { return len(line) + len("\r\n ") }

// hasRoom reports whether a line is stored.
func (h *responseHead) hasRoom(line []byte) bool {
	return h.storedLines < maxStoredLines && h.storedBytes+storedSize(line) <= maxStoredHeaderBytes
}

const (
	locationHeader = "Location"
	maxTarget      = 1 << 10 // bytes of a Location that has no room
)

// shortTarget cuts the value of a Location: without its query, as those of log-ins are long.
func shortTarget(value []byte) []byte {
	if end := bytes.IndexAny(value, "?#"); end >= 0 {
		value = value[:end]
	}
	if len(value) <= maxTarget {
		return value
	}
	value = value[:maxTarget]
	if escape := bytes.LastIndexByte(value, '%'); escape > len(value)-len("%20") {
		value = value[:escape]
	}
	return value
}

// isName reports whether text is the name of a field: a token (RFC 9110, section 5.6.2).
func isName(text []byte) bool {
	for _, c := range text {
		if !httpguts.IsTokenRune(rune(c)) {
			return false
		}
	}
	return len(text) > 0
}

// isValue reports whether text is the value of a field (RFC 9110, section 5.5): no control characters but tabs.
func isValue(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
