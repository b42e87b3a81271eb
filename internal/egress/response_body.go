package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"time"
)

// maxTrailerBytes bounds the fields behind a chunked body.
const maxTrailerBytes = 8 << 10

// rawTime bounds how long a body whose end is in doubt is read: most of these arrive with the head.
const rawTime = 250 * time.Millisecond

// readBody reads the body within its bounds, and puts its beginning of the given length into the response. whole reports
// that its end was reached. The caller bounds the time of a body whose end is in doubt: it is taken as it is, and
// Truncated then says that it may have been longer.
func readBody(br *bufio.Reader, h *responseHead, response *Response, stored int) (whole bool, err error) {
	switch h.framing() {
	case framedAsEmpty:
		return true, nil
	case framedByLength:
		body := &io.LimitedReader{R: br, N: h.length}
		if whole, err = storeBody(body, response, stored); whole && body.N > 0 {
			whole, err = false, fmt.Errorf("read body: %w", io.ErrUnexpectedEOF)
		}
		return whole, err
	case framedByChunks:
		if whole, err = storeBody(httputil.NewChunkedReader(br), response, stored); whole {
			return h.readTrailers(br)
		}
		return whole, err
	case framedInDoubt:
		whole, err = storeBody(br, response, stored)
		if errors.Is(err, errTooLarge) || isTimeout(err) {
			response.Truncated, err = true, nil
		}
		return whole, err
	case framedByClose:
	}
	return storeBody(br, response, stored)
}

// storeBody reads a body to its end or its bound, and stores the beginning.
func storeBody(body io.Reader, response *Response, most int) (whole bool, err error) {
	var stored bytes.Buffer
	n, err := io.Copy(&stored, io.LimitReader(body, int64(most)+1))
	whole = n <= int64(most) && err == nil
	if n > int64(most) {
		response.Truncated = true
		stored.Truncate(most)
		rest := int64(MaxBodyBytes - most - 1)
		if n, err = io.Copy(io.Discard, io.LimitReader(body, rest)); err == nil {
			whole = n < rest
		}
	}
	if stored.Len() > 0 {
		response.Body = bytes.Clone(stored.Bytes())
	}
	if err != nil {
		return false, fmt.Errorf("read body: %w", err)
	}
	return whole, nil
}

// readTrailers reads what follows the last chunk, to the end of the response. Trailers are not stored.
func (h *responseHead) readTrailers(br *bufio.Reader) (whole bool, err error) {
	trailers := responseHead{stored: make(map[string][]string)}
	if err := trailers.readFields(br, maxTrailerBytes); err != nil {
		return false, fmt.Errorf("read trailers: %w", err)
	}
	return !trailers.irregular && trailers.framingFields == 0, nil
}

// unexpectedEOF is the error for an end in the middle.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
