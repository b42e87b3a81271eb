package api

import (
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
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

// Limits of the size of a body. openapi.yaml documents them.
const (
	roomAroundPayload = 64 << 10 // bytes of a body besides its payload
	minBatchBytes     = 8 << 20  // the limit of a batch, if it is not twice the largest payload
)

const contentJSON = "application/json"

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

// bodies is how the bodies of requests are read.
type bodies struct {
	budget      *bodyBudget
	pace        bodyPace
	most        int // bytes of a body
	mostOfBatch int // bytes of the body of a batch
	metrics     Metrics
}

// newBodies returns the bodies of an installation whose largest payload has that many bytes.
func newBodies(maxPayload int, metrics Metrics) *bodies {
	return &bodies{
		budget: newBodyBudget(maxPayload), pace: usualPace(), metrics: metrics,
		most: maxPayload + roomAroundPayload, mostOfBatch: max(minBatchBytes, 2*maxPayload),
	}
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

// checkContentType refuses a body whose Content-Type is not JSON in UTF-8, the only encoding
// that RFC 8259 §8.1 permits.
func checkContentType(h http.Header) error {
	if given := h.Get("Content-Type"); given != "" && given != contentJSON {
		media, params, err := mime.ParseMediaType(given)
		if err != nil || media != contentJSON {
			return unsupported("the body must be " + contentJSON)
		}
		if charset, named := params["charset"]; named && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
			return unsupported("the body must be in UTF-8: Content-Type names another charset")
		}
	}
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return unsupported("a compressed body is not supported")
	}
	return nil
}

func unsupported(detail string) error {
	return &httpError{unsupportedMedia(), detail}
}

// tooLarge is the error for a value of size bytes; 0 if that is not known.
func tooLarge(field string, limit int, size int64) error {
	return &webhook.Error{Code: webhook.CodeTooLarge, Fields: []webhook.FieldError{overLimit(field, limit, size)}}
}

func overLimit(field string, limit int, size int64) webhook.FieldError {
	message := "is larger than " + strconv.Itoa(limit) + " bytes"
	if size > 0 {
		message = "has " + strconv.FormatInt(size, 10) + " bytes; the limit is " + strconv.Itoa(limit)
	}
	return webhook.FieldError{Field: field, Message: message}
}
