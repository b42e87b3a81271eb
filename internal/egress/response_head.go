package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/everpost/everpost/internal/retry"
)

const (
	// maxHeadLine bounds a line that is parsed. A longer one counts as one that cannot be.
	maxHeadLine = 16 << 10
	// maxStoredLines bounds the fields that are stored.
	maxStoredLines = 200

	proto = "HTTP/"
)

var (
	errNoStatusLine = errors.New("the answer does not begin with an HTTP status line")
	errTooLarge     = errors.New("headers above 64 KiB")
)

// bodyFraming is how the end of a body is found.
type bodyFraming uint8

const (
	framedByClose  bodyFraming = iota // by the end of the connection
	framedAsEmpty                     // the status allows no body
	framedByLength                    // Content-Length
	framedByChunks                    // Transfer-Encoding: chunked
	framedInDoubt                     // the fields contradict one another, or cannot be parsed
)

// responseHead is what was read of a response's head. It is read as tolerantly as browsers and
// curl do: the status line decides, and a line that cannot be parsed is left out. Only what is
// beyond doubt lets the connection be kept: see keeps.
type responseHead struct {
	status int
	recent bool // HTTP/1.1: the version of kept connections

	stored      map[string][]string // within its bounds, without secrets of the receiver
	storedLines int
	storedBytes int

	answer    retry.Answer  // the fields that matter to later decisions, however many others there are
	draft     retry.Answer  // drafts 0 to 6 of the IETF's RateLimit fields have one field for each value
	keepAlive time.Duration // how long the receiver says it keeps an idle connection; 0 if it does not say

	irregular      bool // a line cannot be parsed, or is folded
	closes         bool // Connection: close
	framingFields  int  // lines that are framing fields, or look like one
	chunked        bool // one of them is exactly "chunked"
	length         int64
	lengthDeclared bool // one of them is an all-digit Content-Length
}

// readHead reads a response's head and skips interim responses.
//
// The head is nil if no status was read. From then on the status counts: an error with a head
// means that its fields are not complete. The error is io.EOF if the connection ended before the
// first byte, io.ErrUnexpectedEOF after it.
func readHead(br *bufio.Reader) (*responseHead, error) {
	irregular := false
	for {
		h, err := readStatusLine(br)
		if err != nil {
			return nil, err
		}
		h.irregular = h.irregular || irregular
		err = h.readFields(br, MaxHeaderBytes)
		if interim := 100 <= h.status && h.status <= 199 && h.status != http.StatusSwitchingProtocols; !interim {
			return h, err
		}
		if err != nil {
			return nil, err
		}
		irregular = h.irregular
	}
}

// readStatusLine reads a status line. It fails as soon as what has arrived cannot be one.
func readStatusLine(br *bufio.Reader) (*responseHead, error) {
	for n := 1; n <= len(proto); n++ {
		start, err := br.Peek(n)
		switch {
		case !bytes.EqualFold(start, []byte(proto[:len(start)])):
			return nil, errNoStatusLine
		case err != nil && n > 1:
			return nil, unexpectedEOF(err)
		case err != nil:
			return nil, err //nolint:wrapcheck // io.EOF must stay itself
		}
	}
	line, err := readLine(br)
	if err != nil {
		return nil, err
	}
	return parseStatusLine(line)
}

// parseStatusLine parses "HTTP/" in any case, digit[.digit], blanks, three digits, and then a
// blank or the line's end. What follows may be anything.
func parseStatusLine(line []byte) (*responseHead, error) {
	version, rest := cutDigits(line[len(proto):])
	if len(version) == 1 && len(rest) > 0 && rest[0] == '.' {
		minor, after := cutDigits(rest[1:])
		if len(minor) != 1 {
			return nil, errNoStatusLine
		}
		version, rest = line[len(proto):len(line)-len(after)], after
	}
	gap := len(rest) - len(bytes.TrimLeft(rest, blanks))
	code, end := cutDigits(rest[gap:])
	if len(version) != 1 && len(version) != 3 || gap == 0 || len(code) != 3 || len(end) > 0 && !isBlank(end[0]) {
		return nil, errNoStatusLine
	}
	status, err := strconv.Atoi(string(code))
	if err != nil {
		return nil, errNoStatusLine
	}
	regular := bytes.HasPrefix(line, []byte(proto)) && gap == 1 && rest[0] == ' ' && (len(end) == 0 || end[0] == ' ')
	return &responseHead{status: status, recent: string(version) == "1.1", irregular: !regular, stored: make(map[string][]string)}, nil
}

// blanks separate the parts of a line. A stray carriage return is one: line ends of "\r\r\n" exist.
const blanks = " \t\r"

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

// cutDigits cuts the text behind its leading digits.
func cutDigits(text []byte) (digits, rest []byte) {
	n := slices.IndexFunc(text, func(c byte) bool { return c < '0' || c > '9' })
	if n < 0 {
		n = len(text)
	}
	return text[:n], text[n:]
}

// readFields reads the fields to the empty line that ends them, at most so many bytes.
func (h *responseHead) readFields(br *bufio.Reader, limit int) error {
	for size := 0; ; {
		line, err := readLine(br)
		if err != nil {
			return err
		}
		if size += len(line); size > limit {
			return errTooLarge
		}
		h.irregular = h.irregular || bytes.IndexByte(line, '\r') >= 0
		if len(bytes.Trim(line, "\r")) == 0 {
			return nil
		}
		line, folded := unfold(br, line)
		h.irregular = h.irregular || folded
		h.add(line)
	}
}

// readLine reads a line without its end. Beyond maxHeadLine the line is cut: it is one byte longer than that. The
// text is valid until the next read.
func readLine(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = br.ReadSlice('\n')
			long = append(long, line[:min(len(line), max(0, maxHeadLine+1-len(long)))]...)
		}
		line = long
	}
	if err != nil {
		return nil, unexpectedEOF(err)
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'}), nil
}

// unfold appends the lines that continue a field (RFC 9112, section 5.2).
func unfold(br *bufio.Reader, line []byte) (whole []byte, folded bool) {
	for {
		next, err := br.Peek(1)
		if err != nil || next[0] != ' ' && next[0] != '\t' {
			return line, folded
		}
		if !folded {
			line, folded = bytes.Clone(line), true
		}
		more, err := readLine(br)
		if err != nil {
			return line, folded
		}
		if len(line) <= maxHeadLine {
			line = append(append(line, ' '), bytes.Trim(more, blanks)...)
		}
	}
}

// looksLikeFraming reports whether a line that cannot be parsed may be a framing field to another reader.
func looksLikeFraming(line []byte) bool {
	line = bytes.ToLower(bytes.TrimLeft(line[:min(len(line), 100)], blanks+"\x00\v\f"))
	return bytes.HasPrefix(line, []byte("content-length")) || bytes.HasPrefix(line, []byte("transfer-encoding"))
}

// note notes a field that matters. Of a field that is given more than once the first one counts.
func (h *responseHead) note(name, value []byte) {
	var lower [len("x-ratelimit-remaining")]byte // the longest of the names below
	if len(name) > len(lower) {
		return
	}
	for i, c := range name {
		if lower[i] = c; 'A' <= c && c <= 'Z' {
			lower[i] |= 0x20
		}
	}
	switch string(lower[:len(name)]) {
	case "content-length":
		h.framingFields++
		digits, rest := cutDigits(value)
		length, err := strconv.ParseInt(string(digits), 10, 64)
		h.length, h.lengthDeclared = length, err == nil && len(rest) == 0
	case "transfer-encoding":
		h.framingFields++
		h.chunked = bytes.EqualFold(value, []byte("chunked"))
	case "connection":
		h.closes = h.closes || httpguts.HeaderValuesContainsToken([]string{string(value)}, "close")
	case "keep-alive":
		h.keepAlive = cmp.Or(h.keepAlive, keepAliveHint(string(value)))
	default:
		h.noteHint(string(lower[:len(name)]), value)
	}
}

// noteHint notes a field that says when to send again.
func (h *responseHead) noteHint(lower string, value []byte) {
	set := func(field *string) {
		if *field == "" {
			*field = string(value)
		}
	}
	switch lower {
	case "retry-after":
		set(&h.answer.RetryAfter)
	case "date":
		set(&h.answer.Date)
	case "x-ratelimit-remaining":
		set(&h.answer.RateLimitRemaining)
	case "x-ratelimit-reset":
		set(&h.answer.RateLimitReset)
	case "ratelimit-remaining":
		set(&h.draft.RateLimitRemaining)
	case "ratelimit-reset":
		set(&h.draft.RateLimitReset)
	case "ratelimit": // a list: RFC 9110, section 5.3
		if all := &h.answer.RateLimit; *all == "" {
			*all = string(value)
		} else if len(*all)+len(value) <= maxHeadLine {
			*all += ", " + string(value)
		}
	}
}

// framing returns how the end of the body is found.
func (h *responseHead) framing() bodyFraming {
	switch {
	case h.status == http.StatusSwitchingProtocols, h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		return framedAsEmpty
	case h.framingFields == 0 && !h.irregular:
		return framedByClose
	case h.framingFields == 1 && h.lengthDeclared:
		return framedByLength
	case h.framingFields == 1 && h.chunked && h.recent:
		return framedByChunks
	default:
		return framedInDoubt
	}
}

// keeps reports whether the connection may be kept when the body has been read to its end: there
// is no doubt where that is, for any reader of the response.
func (h *responseHead) keeps() bool {
	if !h.recent || h.irregular || h.closes || h.status < 200 {
		return false
	}
	switch h.framing() {
	case framedByLength, framedByChunks:
		return true
	case framedAsEmpty: // a length would announce what another reader takes for a body
		return h.framingFields == 0 || h.framingFields == 1 && h.lengthDeclared && h.length == 0
	case framedByClose, framedInDoubt:
	}
	return false
}

// response is the response for a head, without a body.
func (h *responseHead) response() Response {
	answer := h.answer
	answer.Status, answer.ReceivedAt = h.status, time.Now()
	answer.RateLimitRemaining = cmp.Or(answer.RateLimitRemaining, h.draft.RateLimitRemaining)
	answer.RateLimitReset = cmp.Or(answer.RateLimitReset, h.draft.RateLimitReset)
	return Response{Answer: answer, Header: h.stored}
}

// keepAliveHint returns for how long a Keep-Alive field says that an idle connection is kept
// ("timeout=5", RFC 2068, section 19.7.1.1, sent by Apache and Node.js), at least a nanosecond;
// 0 if it does not say.
func keepAliveHint(value string) time.Duration {
	for field := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(field, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "timeout") {
			continue
		}
		seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil {
			return 0
		}
		return max(time.Duration(seconds)*time.Second, 1)
	}
	return 0
}
