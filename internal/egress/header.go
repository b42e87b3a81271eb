package egress

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// requestHead returns the request line and the header, with an Authorization field unless that is
// empty. Names are written as they are given: some receivers and their frameworks tell spellings
// apart, although HTTP does not. It refuses fields that cannot be written as they are, so that
// what is signed is what is sent.
func (c *Client) requestHead(t target, r *Request, authorization string) ([]byte, error) {
	var head headWriter
	head.text = append(make([]byte, 0, 1<<10), "POST "+t.path+" HTTP/1.1\r\n"...)
	head.field("Host", t.authority)
	given := func(name string) bool {
		return slices.ContainsFunc(r.Header, func(field [2]string) bool { return strings.EqualFold(field[0], name) })
	}
	if !given("User-Agent") {
		head.field("User-Agent", c.userAgent)
	}
	for _, field := range r.Header {
		switch {
		case !httpguts.ValidHeaderFieldName(field[0]) || !httpguts.ValidHeaderFieldValue(field[1]):
			return nil, denied("a header is not valid")
		case isConnectionHeader(field[0]), authorization != "" && strings.EqualFold(field[0], "Authorization"):
		default:
			head.field(field[0], strings.Trim(field[1], " \t"))
		}
	}
	if authorization != "" {
		head.field("Authorization", authorization)
	}
	if !given("Content-Type") {
		head.field("Content-Type", "application/json")
	}
	head.field("Content-Length", strconv.Itoa(len(r.Body)))
	return append(head.text, "\r\n"...), nil
}

// headWriter writes the fields of a request.
type headWriter struct{ text []byte }

func (w *headWriter) field(name, value string) {
	w.text = append(w.text, name...)
	w.text = append(w.text, ": "...)
	w.text = append(w.text, value...)
	w.text = append(w.text, "\r\n"...)
}

// isConnectionHeader reports whether only the client may set a field: it concerns the
// connection, the framing of the message or the sender, not the event. Endpoints from before a name was
// reserved may have it.
func isConnectionHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
		"upgrade", "expect", "forwarded", "proxy-connection", "proxy-authorization", "proxy-authenticate":
		return true
	default:
		return strings.HasPrefix(name, "sec-fetch-") || strings.HasPrefix(name, "x-forwarded-")
	}
}

// isSecretOfReceiver reports whether a field of a response, by its canonical name, holds secrets of the receiver.
func isSecretOfReceiver(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate",
		"Authorization", "Proxy-Authorization", "Authentication-Info", "Cookie":
		return true
	default:
		return false
	}
}

// storableHeader removes from a response's header what exceeds the bound: fields in alphabetical
// order are kept as long as they fit.
func storableHeader(header http.Header) map[string][]string {
	size := 0
	for name, values := range header {
		size += fieldSize(name, values)
	}
	if size <= maxStoredHeaderBytes {
		return header
	}
	size = 0
	for _, name := range slices.Sorted(maps.Keys(header)) {
		size += fieldSize(name, header[name])
		if size > maxStoredHeaderBytes {
			size -= fieldSize(name, header[name])
			delete(header, name)
		}
	}
	return header
}

func fieldSize(name string, values []string) int {
	size := 0
	for _, value := range values {
		size += len(name) + len(value) + len(": \r\n")
	}
	return size
}
