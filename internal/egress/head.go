package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxHeadLines bounds a head's fields: to net/http each costs 150 bytes and more,
// however short it is.
const maxHeadLines = 256

const proto = "HTTP/"

var errTooManyFields = errors.New("more than 256 lines of headers")

// readHead reads the answer's head, passing over interim ones. An end before the
// first byte is io.EOF.
//
// A head is parsed when all of it is there, and no sooner: net/http would build its
// map while it waits for the rest, which is ten times as large as what was sent.
func (c *Client) readHead(br *bufio.Reader, in *limitedReader, req *http.Request) (*http.Response, error) {
	for {
		if err := c.awaitHead(br, in); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		head, err := http.ReadResponse(br, req)
		if err != nil {
			// The parser takes half a line at the end of what could be read for a whole
			// one, and complains about it: the cause is why there was no more.
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

// awaitHead returns when a whole head can be read without waiting, or what is certainly
// none: the parser finds the words for that. A head that is longer than the reader's
// buffer waits in one of the client's.
func (c *Client) awaitHead(br *bufio.Reader, in *limitedReader) error {
	start, err := br.Peek(len(proto))
	if string(start) != proto {
		if len(start) == 0 {
			return err //nolint:wrapcheck // by readHead
		}
		return nil
	}
	var scan headScan
	for seen := 0; ; {
		text, _ := br.Peek(br.Buffered())
		end := scan.end(text[seen:])
		switch {
		case scan.lines > maxHeadLines, end > 0 && announcesMuch(text[:seen+end]):
			return errTooManyFields
		case end > 0:
			return nil
		}
		if seen = len(text); seen == br.Size() {
			return c.awaitLongHead(br, in, scan)
		}
		if _, err := br.Peek(seen + 1); err != nil {
			return err //nolint:wrapcheck // by readHead
		}
	}
}

// awaitLongHead is awaitHead's end for a head of which the reader's buffer is full.
func (c *Client) awaitLongHead(br *bufio.Reader, in *limitedReader, scan headScan) error {
	long, _ := c.heads.Get().(*[MaxHeaderBytes]byte) // the pool holds nothing else
	seen, err := io.ReadFull(br, long[:br.Size()])
	for end := 0; err == nil && end == 0; {
		var n int
		n, err = in.Read(long[seen:])
		end = scan.end(long[seen : seen+n])
		switch {
		case scan.lines > maxHeadLines, end > 0 && announcesMuch(long[:seen+end]):
			err = errTooManyFields
		case end > 0:
			err = nil // it may have come with the last bytes
		}
		seen += n
	}
	if err != nil {
		c.heads.Put(long)
		return err
	}
	in.ahead, in.release = long[:seen], func() { c.heads.Put(long) }
	return nil
}

// announcesMuch reports whether a head names too many fields to come after the body:
// net/http makes a map of their names.
func announcesMuch(head []byte) bool {
	return bytes.Count(head, []byte{','}) > maxHeadLines && bytes.Contains(bytes.ToLower(head), []byte("\ntrailer:"))
}

// headScan looks for the end of a head, an empty line, as the head comes.
type headScan struct {
	lines  int
	length int  // of the line so far
	cr     bool // the line begins with a carriage return
}

// end is how much of the next piece of text is the head's, if its end is in it; else 0.
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
