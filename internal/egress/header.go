package egress

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/everpost/everpost/internal/failpoint"
)

// newRequest builds the request, with an Authorization header unless that is empty. It
// refuses fields that net/http would drop silently, so that what is signed is what is sent.
func (c *Client) newRequest(t target, r *Request, authorization string) (*http.Request, error) {
	header := make(http.Header, len(r.Header)+3)
	values := make([]string, 0, len(r.Header)) // all values in one allocation
	for _, field := range r.Header {
		if !httpguts.ValidHeaderFieldName(field[0]) || !httpguts.ValidHeaderFieldValue(field[1]) {
			return nil, denied("a header is not valid")
		}
		name := textproto.CanonicalMIMEHeaderKey(field[0])
		if !isConnectionHeader(name) {
			values = append(values, field[1])
			if before := header[name]; before != nil {
				header[name] = append(before, field[1])
			} else {
				header[name] = slices.Clip(values[len(values)-1:])
			}
		}
	}
	if authorization != "" {
		header["Authorization"] = []string{authorization}
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = []string{"application/json"}
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{c.userAgent}
	}
	req := &http.Request{
		Method: http.MethodPost,
		URL:    t.url,
		Host:   t.url.Host,
		Header: header,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body:          http.NoBody,
		ContentLength: int64(len(r.Body)),
	}
	return req, nil
}

// rewind makes the request's body readable from its start.
func rewind(req *http.Request, body []byte) {
	if len(body) > 0 {
		req.Body = io.NopCloser(failpoint.HitWhenRead("send-mid-body", inlineBytes, bytes.NewReader(body)))
	}
}

// isConnectionHeader reports whether only the client may set a field: it concerns the
// connection, the framing of the message or the sender, not the event. Endpoints from before a name was
// reserved may have it.
func isConnectionHeader(name string) bool {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer",
		"Upgrade", "Expect", "Forwarded", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate":
		return true
	default:
		return strings.HasPrefix(name, "Sec-Fetch-") || strings.HasPrefix(name, "X-Forwarded-")
	}
}

// storableHeader removes secrets of the receiver from a response's header, and what exceeds
// the bound: fields in alphabetical order are kept as long as they fit.
func storableHeader(header http.Header) map[string][]string {
	for _, name := range []string{
		"Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate",
		"Authorization", "Proxy-Authorization", "Authentication-Info", "Cookie",
	} {
		delete(header, name)
	}
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

// keepAliveHint returns for how long the receiver says it keeps an idle connection
// ("Keep-Alive: timeout=5", RFC 2068, section 19.7.1.1, sent by Apache and Node.js), less a
// second for the network. Without a hint it returns the fallback.
func keepAliveHint(header http.Header, fallback time.Duration) time.Duration {
	for field := range strings.SplitSeq(header.Get("Keep-Alive"), ",") {
		name, value, _ := strings.Cut(field, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "timeout") {
			continue
		}
		seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
		if err != nil {
			return fallback
		}
		return min(fallback, time.Duration(seconds)*time.Second-time.Second)
	}
	return fallback
}
