package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// How long a body may take (docs/errors.md says it to callers).
const (
	bodyGrace = 2 * time.Second // the pace of a body that is complete by then does not matter
	bodyRate  = 64 << 10        // bytes per second that a later one has to keep up with
	bodyPause = 2 * time.Second // no such body may stop for longer
	bodyTime  = 30 * time.Second
)

// bodyPace is how long a body may take; other than usual in tests.
type bodyPace struct {
	grace time.Duration
	rate  int
	pause time.Duration
	limit time.Duration
}

func usualPace() bodyPace {
	return bodyPace{grace: bodyGrace, rate: bodyRate, pause: bodyPause, limit: bodyTime}
}

// allows is until when, since its beginning, a body may go on of which so many bytes have
// arrived, the last ones at the given time. Bytes buy the time that they take at the least
// rate, but no longer pause than any other: a body that comes almost whole and then stops does
// not keep its room.
func (p bodyPace) allows(received int, at time.Duration) time.Duration {
	kept := time.Duration(received) * time.Second / time.Duration(p.rate)
	return min(max(p.grace, min(kept, at+p.pause)), p.limit)
}

// bodyReader reads the body of one request into memory that is reserved before.
type bodyReader struct {
	source     io.Reader
	length     int64 // -1: not known
	room       *bodyReservation
	batch      bool // may be as large as a batch: then only a part of the room is for it
	pace       bodyPace
	connection *http.ResponseController
	start      time.Time
	received   int
	allowed    time.Duration // the deadline that is set, since start
}

// read reads the body to its end. A body that is known to fit into one step is read into
// a buffer of its size, every other one into steps, which are joined when its size is
// known. At its end net/http takes away the deadline.
func (b *bodyReader) read() (text []byte, err error) {
	b.start = time.Now()
	if b.length >= 0 && b.length <= bodyStep {
		if err := b.room.reserve(int(b.length), false); err != nil {
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

// fill reads until p is full, then err is nil, or the body has ended, then it is io.EOF.
func (b *bodyReader) fill(p []byte) (err error) {
	n := 0
	for n < len(p) && err == nil {
		at := time.Duration(0)
		if b.received > 0 {
			at = time.Since(b.start)
		}
		if allowed := b.pace.allows(b.received, at); allowed != b.allowed {
			b.allowed = allowed
			_ = b.connection.SetReadDeadline(b.start.Add(allowed)) // an error: there is no connection to read from
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

// segments are kept from one body to the next.
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
		if err := b.room.reserve(bodyStep, b.batch && large); err != nil {
			return nil, err
		}
		segment, _ := segments.Get().(*[bodyStep]byte) // the pool holds nothing else
		taken = append(taken, segment)
		err := b.fill(segment[:])
		switch {
		case err == io.EOF && int64(b.received) >= b.length: //nolint:errorlint // of fill, never wrapped
			return b.room.budget.join(taken, b.received), nil
		case err == io.EOF: //nolint:errorlint // see above
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case int64(b.received) == b.length:
			return b.room.budget.join(taken, b.received), nil
		}
	}
}

// join copies the segments of a body into one buffer of its size. The two take up twice
// what was reserved for as long as it takes, so that only one body is joined at a time.
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

// body reads the request's body, maxBodyBytes at most. The bytes are the caller's
// to keep; room for them is held until the request is answered.
func (c call) body() ([]byte, error) { return c.bodyUpTo(maxBodyBytes) }

// bodyUpTo reads the request's body, limit bytes at most.
func (c call) bodyUpTo(limit int) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > int64(limit) {
		return nil, tooLarge("body", limit)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	reader := bodyReader{
		source: http.MaxBytesReader(c.Response().Writer, r.Body, int64(limit)), length: r.ContentLength,
		room: c.room, batch: limit > maxBodyBytes, pace: c.server.pace, connection: http.NewResponseController(c.Response().Writer),
	}
	text, err := reader.read()
	if err != nil {
		return nil, c.bodyError(err, limit)
	}
	if len(text) == 0 {
		return nil, nil
	}
	return text, checkContentType(r.Header)
}

// bodyError is the answer to a body that could not be read. What is left of it is not
// waited for: the connection is closed.
func (c call) bodyError(err error, limit int) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge("body", limit)
	}
	c.Response().Header().Set("Connection", "close")
	code := webhook.CodeOf(err)
	switch {
	case code == webhook.CodeRateLimited:
		c.server.Metrics.BodyRefused(BodyOverTenant)
		return err
	case code == webhook.CodeUnavailable:
		c.server.Metrics.BodyRefused(BodyOverProcess)
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.server.Metrics.BodyRefused(BodyTooSlow)
		return &httpError{requestTimeout(), "the body came too slowly: what is not complete after 2 s must keep to 64 KiB a second, and be complete after 30 s"}
	}
	return webhook.Invalid("body", "could not be read to its end")
}
