package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxHeadLines bounds a head's fields: each costs net/http at least 150 bytes, however
// short it is.
const maxHeadLines = 256

const proto = "HTTP/"

var errTooManyFields = errors.New("more than 256 lines of headers")

// readHead reads the response's head and skips interim responses. It returns io.EOF when
// the connection ends before the first byte.
//
// A head is parsed only when all of it has arrived: otherwise net/http builds its map, ten
// times as large as what was sent, while it waits for the rest.
func readHead(br *bufio.Reader, in *limitedReader, req *http.Request) (*http.Response, error) {
	for {
		if err := awaitHead(br, in); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		head, err := http.ReadResponse(br, req)
		if err != nil {
			// The parser treats an incomplete last line as a complete one and reports it as
			// malformed. The cause is the read error.
			if in.err != nil && !errors.Is(in.err, io.EOF) {
				err = in.err
			}
			return nil, fmt.Errorf("read answer: %w", err)
		}
		interim := 100 <= head.StatusCode && head.StatusCode <= 199
		if !interim || head.StatusCode == http.StatusSwitchingProtocols {
			return head, nil
		}
	}
}

// awaitHead returns when a whole head can be read without blocking, or when what was read
// is certainly not a head: the parser then reports the error.
func awaitHead(br *bufio.Reader, in *limitedReader) error {
	start, err := br.Peek(len(proto))
	if string(start) != proto {
		if len(start) == 0 {
			return err //nolint:wrapcheck // readHead wraps it
		}
		return nil
	}
	var scan headScan
	for seen := 0; ; {
		text, _ := br.Peek(br.Buffered())
		end := scan.end(text[seen:])
		switch {
		case scan.lines > maxHeadLines, end > 0 && declaresManyTrailers(text[:seen+end]):
			return errTooManyFields
		case end > 0:
			return nil
		}
		if seen = len(text); seen == br.Size() {
			return awaitLongHead(br, in, scan)
		}
		if _, err := br.Peek(seen + 1); err != nil {
			return err //nolint:wrapcheck // readHead wraps it
		}
	}
}

// awaitLongHead continues awaitHead for a head that has filled the reader's buffer.
func awaitLongHead(br *bufio.Reader, in *limitedReader, scan headScan) error {
	long := make([]byte, MaxHeaderBytes)
	seen, err := io.ReadFull(br, long[:br.Size()])
	for end := 0; err == nil && end == 0; {
		var n int
		n, err = in.Read(long[seen:])
		end = scan.end(long[seen : seen+n])
		switch {
		case scan.lines > maxHeadLines, end > 0 && declaresManyTrailers(long[:seen+end]):
			err = errTooManyFields
		case end > 0:
			err = nil // the error may have come with the last bytes
		}
		seen += n
	}
	if err == nil {
		in.ahead = long[:seen]
	}
	return err
}

// declaresManyTrailers reports whether a head declares too many trailers: net/http makes a
// map of their names.
func declaresManyTrailers(head []byte) bool {
	return bytes.Count(head, []byte{','}) > maxHeadLines && bytes.Contains(bytes.ToLower(head), []byte("\ntrailer:"))
}

// headScan finds the end of a head, an empty line, while the head arrives in pieces.
type headScan struct {
	lines  int
	length int  // of the line so far
	cr     bool // the line begins with a carriage return
}

// end returns how many bytes of the next piece belong to the head, if the head ends in it,
// else 0.
func (s *headScan) end(text []byte) int {
	for size := len(text); ; {
		line, rest, ended := bytes.Cut(text, []byte{'\n'})
		if s.length == 0 && len(line) > 0 {
			s.cr = line[0] == '\r'
		}
		s.length += len(line)
		if !ended {
			return 0
		}
		s.lines++
		if s.length == 0 || s.length == 1 && s.cr {
			return size - len(rest)
		}
		s.length, text = 0, rest
	}
}
