package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
)

// ErrIncomplete is the error of an export that broke off.
var ErrIncomplete = errors.New("the export is not complete: its last line, of the kind end, is missing")

// ExportLine is one line of an export. Kind says what Data is: "tenant", "endpoint", "key", "event" (an ExportedEvent), "delivery",
// "attempt" (an DeliveryAttempt), "replay", "audit", or "end": the number of lines of each kind. ExportLine[json.RawMessage] reads any.
type ExportLine[T any] struct {
	Kind string `json:"kind"`
	Data T      `json:"data"`
}

// endLine is how the last line of an export begins, and longestEnd more than its length.
const (
	endLine    = `{"kind":"end",`
	longestEnd = 4 << 10
)

// Export writes everything that is stored of the tenant to w, an ExportLine in each line, however long it takes. ErrIncomplete: it broke off.
// Other errors are those of w and of any call.
func (t TenantCalls) Export(ctx context.Context, w io.Writer) error {
	patient := *t.c.http
	patient.Timeout = 0
	response, err := t.c.send(ctx, &patient, Request{Method: http.MethodGet, Path: t.at("export").path})
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
		return t.c.noResponse(ctx.Err())
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
