package client

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// ErrIncomplete is the error for an export that broke off.
var ErrIncomplete = errors.New("the export is not complete: its last line, of the kind end, is missing")

// endLine is how the last line of an export begins, and longestEnd more than its length.
const (
	endLine    = `{"kind":"end",`
	longestEnd = 4 << 10
)

// Export copies an export to w, however long it takes. Errors are those of Do, ErrIncomplete and w's.
func (c *Client) Export(ctx context.Context, r Request, w io.Writer) error {
	patient := *c.http
	patient.Timeout = 0
	response, err := c.send(ctx, &patient, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var last tail
	_, err = io.Copy(io.MultiWriter(w, &last), response.Body)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && !last.isEnd():
		return ErrIncomplete
	case ctx.Err() != nil:
		return c.unreachable(ctx, err)
	}
	return err //nolint:wrapcheck // of w, or it says what happened to the connection
}

// tail keeps the last bytes that are written to it.
type tail []byte

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p[max(0, len(p)-longestEnd):]...)
	*t = append((*t)[:0], (*t)[max(0, len(*t)-longestEnd):]...)
	return len(p), nil
}

// isEnd reports whether the last line is complete and the last one of an export.
func (t *tail) isEnd() bool {
	text, complete := bytes.CutSuffix(*t, []byte("\n"))
	return complete && bytes.HasPrefix(text[bytes.LastIndexByte(text, '\n')+1:], []byte(endLine))
}
