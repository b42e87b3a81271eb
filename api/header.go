package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// readHeaders reads the headers that an endpoint adds to each request.
//
// A redacted value stands for the stored value of the same header, which must exist: the result of
// GET can be sent with PATCH. stored is nil if the stored headers are not known yet.
func readHeaders(d *jsonDecoder, stored map[string]string) map[string]string {
	const known = "is " + webhook.Redacted + ", which only stands for a stored value; send the value itself"
	headers := readHeaderMap(d, func(name string) string {
		if stored != nil && nameIn(stored, name) == "" {
			return known
		}
		return ""
	})
	for name, value := range headers {
		if value == webhook.Redacted {
			headers[name] = stored[nameIn(stored, name)]
		}
	}
	return headers
}

// readHeadersForNewOrigin reads the headers of an endpoint that moves to another origin. Redacted values
// are refused.
func readHeadersForNewOrigin(d *jsonDecoder) map[string]string {
	return readHeaderMap(d, func(string) string {
		return "is " + webhook.Redacted + ", which does not stand for the stored value where the URL moves to another scheme, host or port; " +
			"send the value itself"
	})
}

// readHeaderMap reads the map of headers of an endpoint or an event. redacted returns what is wrong with a redacted value of a
// header, or "".
func readHeaderMap(d *jsonDecoder, redacted func(name string) string) map[string]string {
	seen := make(map[string]bool)
	return d.stringMap(webhook.MaxHeaders, func(name, value string) string {
		lower := strings.ToLower(name)
		again := seen[lower]
		seen[lower] = true
		switch {
		case !token(name):
			return "is not the name of a header"
		case reservedHeader(lower):
			return "is reserved and cannot be set"
		case again:
			return "is given more than once; case makes no difference"
		case value == webhook.Redacted && redacted(name) != "":
			return redacted(name)
		case !fieldValue(value):
			return "must be printable ASCII, without spaces at its ends"
		case len(name)+len(value) > webhook.MaxHeaderBytes:
			return "is larger than " + strconv.Itoa(webhook.MaxHeaderBytes) + " bytes, name and value together"
		}
		return ""
	})
}

// readEventHeaders reads the headers of an event. They are not secret, so a value that looks like a redacted one is a value.
func readEventHeaders(d *jsonDecoder) map[string]string {
	return readHeaderMap(d, func(string) string { return "" })
}

// showHeaders returns an endpoint's headers with redacted values.
func showHeaders(headers map[string]string) map[string]string {
	shown := make(map[string]string, len(headers))
	for name := range headers {
		shown[name] = webhook.Redacted
	}
	return shown
}

// nameIn returns the spelling of a header's name in a map, ignoring case, or "".
func nameIn(headers map[string]string, name string) string {
	for other := range headers {
		if strings.EqualFold(other, name) {
			return other
		}
	}
	return ""
}

// reservedHeader reports whether Everpost or HTTP itself sets the header (name in lower case). The
// hop-by-hop headers are those of RFC 9110 §7.6.1 and its predecessors, which intermediaries may
// drop or interpret. Expect would change the exchange from the single request of an attempt. What
// browsers and proxies say of a request (Fetch Metadata, RFC 7239 and its predecessors) is not for
// an endpoint or an event to claim: servers decide by it whom they trust.
func reservedHeader(lower string) bool {
	reserved := []string{
		"connection", "content-length", "expect", "forwarded", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
		"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	}
	prefixes := []string{"webhook-", "everpost-", "sec-fetch-", "x-forwarded-"}
	return slices.Contains(reserved, lower) || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(lower, prefix) })
}

// token reports whether s is a token (RFC 9110 §5.6.2).
func token(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !isDigit(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// fieldValue reports whether s is a valid header value (RFC 9110 §5.5). It refuses bytes beyond
// ASCII, which the RFC calls obsolete and which receivers interpret differently.
func fieldValue(s string) bool {
	for _, c := range []byte(s) {
		if c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}
