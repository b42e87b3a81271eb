package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Limits of the time to receive a body. docs/errors.md documents them.
const (
	bodyGrace = 2 * time.Second // the rate is not checked for a body that is complete by then
	bodyRate  = 64 << 10        // minimum rate in bytes per second after bodyGrace
	bodyPause = 2 * time.Second // maximum pause after bodyGrace
	bodyTime  = 30 * time.Second
)

const byteOrderMark = "\ufeff"

// bodyPace limits the time to receive a body. Tests use other values.
type bodyPace struct {
	grace time.Duration
	rate  int
	pause time.Duration
	limit time.Duration
}

func usualPace() bodyPace {
	return bodyPace{grace: bodyGrace, rate: bodyRate, pause: bodyPause, limit: bodyTime}
}

// allows returns the deadline, relative to the start, for a body of which the given number of
// bytes has arrived, the last of them at the given time. Received bytes extend the deadline at
// the minimum rate, but never allow a longer pause: a body that arrives almost completely and
// then stops must not keep its reservation.
func (p bodyPace) allows(received int, at time.Duration) time.Duration {
	kept := time.Duration(received) * time.Second / time.Duration(p.rate)
	return min(max(p.grace, min(kept, at+p.pause)), p.limit)
}

// bodyReader reads the body of one request into memory that is reserved first.
type bodyReader struct {
	source      io.Reader
	length      int64 // -1: unknown
	reservation *bodyReservation
	batch       bool // a batch, which may use only a part of the budget
	pace        bodyPace
	connection  *http.ResponseController
	start       time.Time
	received    int
	allowed     time.Duration // the current deadline, since start
}

// read reads the whole body. A body whose known size fits into one step is read into a buffer of
// that size. Every other body is read in steps, which are joined at the end. net/http removes
// the read deadline when the body has ended.
func (b *bodyReader) read() (text []byte, err error) {
	b.start = time.Now()
	if b.length >= 0 && b.length <= bodyStep {
		if err := b.reservation.reserve(int(b.length), false); err != nil {
			return nil, err
		}
		text = make([]byte, b.length)
		err = b.fill(text)
		if err == io.EOF { //nolint:errorlint // of fill, never wrapped
			err = io.ErrUnexpectedEOF
		}
	} else {
		text, err = b.readSteps()
	}
	return text, err
}

// fill reads until p is full (err is nil) or the body has ended (err is io.EOF).
func (b *bodyReader) fill(p []byte) (err error) {
	n := 0
	for n < len(p) && err == nil {
		at := time.Duration(0)
		if b.received > 0 {
			at = time.Since(b.start)
		}
		if allowed := b.pace.allows(b.received, at); allowed != b.allowed {
			b.allowed = allowed
			_ = b.connection.SetReadDeadline(b.start.Add(allowed)) // an error: the request has no connection, as in tests
		}
		var more int
		more, err = b.source.Read(p[n:])
		n += more
		b.received += more
	}
	if n == len(p) && err == io.EOF {
		err = nil
	}
	return err
}

// segments are buffers of bodyStep bytes for reuse.
var segments = sync.Pool{New: func() any { return new([bodyStep]byte) }} //nolint:gochecknoglobals // a cache of buffers, as in fmt

func (b *bodyReader) readSteps() ([]byte, error) {
	var taken []*[bodyStep]byte
	defer func() {
		for _, s := range taken {
			segments.Put(s)
		}
	}()
	for {
		large := b.length > bodyStep || len(taken) > 0
		if err := b.reservation.reserve(bodyStep, b.batch && large); err != nil {
			return nil, err
		}
		segment, _ := segments.Get().(*[bodyStep]byte) // the pool holds no other type
		taken = append(taken, segment)
		err := b.fill(segment[:])
		switch {
		case err == io.EOF && int64(b.received) >= b.length: //nolint:errorlint // of fill, never wrapped
			return b.reservation.budget.join(taken, b.received), nil
		case err == io.EOF: //nolint:errorlint // see above
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case int64(b.received) == b.length:
			return b.reservation.budget.join(taken, b.received), nil
		}
	}
}

// join copies the segments of a body into one buffer. Meanwhile they use twice the reserved
// memory, so only one body is joined at a time.
func (b *bodyBudget) join(segments []*[bodyStep]byte, size int) []byte {
	if size > bodyStep {
		b.joining.Lock()
		defer b.joining.Unlock()
	}
	text := make([]byte, size)
	for i, s := range segments {
		copy(text[i*bodyStep:], s[:])
	}
	return text
}

// body reads the request's body, at most maxBody. The caller may keep the bytes; their
// memory stays reserved until the request is answered.
func (c call) body() ([]byte, error) {
	if c.read != nil {
		return *c.read, nil
	}
	return c.bodyUpTo(c.server.maxBody())
}

// bodyUpTo reads the request's body, at most limit bytes. A byte order mark before it is left out (RFC 8259 section 8.1): editors
// and shells of Windows write one.
func (c call) bodyUpTo(limit int) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > int64(limit) {
		return nil, tooLarge("body", limit, r.ContentLength)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	reader := bodyReader{
		source: http.MaxBytesReader(c.Response().Writer, r.Body, int64(limit)), length: r.ContentLength,
		reservation: c.reservation, batch: limit > c.server.maxBody(), pace: c.server.pace, connection: http.NewResponseController(c.Response().Writer),
	}
	text, err := reader.read()
	if err != nil {
		return nil, c.bodyError(err, limit)
	}
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if len(text) == 0 {
		return nil, nil
	}
	return text, checkContentType(r.Header)
}

// bodyError returns the error for a body that could not be read. The rest of the body is not
// read: the connection is closed.
func (c call) bodyError(err error, limit int) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge("body", limit, 0)
	}
	c.Response().Header().Set("Connection", "close")
	code := webhook.CodeOf(err)
	switch {
	case code == webhook.CodeRateLimited:
		c.server.config.Metrics.BodyRefused(BodyOverTenant)
		return err
	case code == webhook.CodeUnavailable:
		c.server.config.Metrics.BodyRefused(BodyOverProcess)
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.server.config.Metrics.BodyRefused(BodyTooSlow)
		return &httpError{requestTimeout(), "the body arrived too slowly: after 2 s it must keep to 64 KiB per second, and after 30 s it must be complete"}
	}
	return webhook.Invalid("body", "could not be read to its end")
}
