package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/everpost/everpost/internal/fair"
	"github.com/everpost/everpost/internal/webhook"
)

// Limits of the memory for answers in a process, and of the time to write one. docs/memory.md documents them.
const (
	answerStep = 64 << 10 // the unit in which room is counted, and written

	// maxPageBytes is where a page of a list is cut. It holds at least one entry.
	maxPageBytes = 1 << 20

	maxProcessAnswers = 64 << 20
	maxTenantAnswers  = 16 << 20

	answerRetryAfter = time.Second

	// encodeWait is how long an answer waits for a processor: see answers.encoders.
	encodeWait = 5 * time.Second

	// A client has to read as fast as it has to send a body: it may take answerGrace, and what it reads gives it
	// time at answerRate, up to answerPause.
	answerGrace = bodyGrace
	answerRate  = bodyRate
	answerPause = 10 * time.Second
	// answerBuffer is the size of the socket's buffer: what is in it counts as read.
	answerBuffer = 128 << 10
)

// answers bounds what answers cost the process.
type answers struct {
	budget   *fair.Semaphore // of memory, in steps of answerStep
	encoders *fair.Semaphore // the processors that may encode lists at a time: half of them, and one for each tenant
}

func newAnswers() *answers {
	return &answers{
		budget:   fair.NewBounded(maxProcessAnswers/answerStep, maxTenantAnswers/answerStep),
		encoders: fair.NewCapped(max(1, runtime.GOMAXPROCS(0)/2), 1), //nolint:mnd // half
	}
}

// answerRoom is the part of the budget for answers that one request holds until its answer is written. A tenant may
// hold as much as is free, up to maxTenantAnswers, so that there is room for the next tenant.
type answerRoom struct {
	of     *answers
	tenant string // of the key; "" for all operators
	held   int    // in steps
}

// reserve takes room for an answer of up to n bytes, before it is read and encoded. CodeRateLimited: answers to the
// tenant use all of its room; CodeUnavailable: the answers to all do.
func (r *answerRoom) reserve(n int) error {
	steps := stepsOf(n)
	if r.of.budget.TryAcquireAll(r.tenant, steps) {
		r.held += steps
		return nil
	}
	if r.of.budget.Held(r.tenant)+steps > maxTenantAnswers/answerStep {
		return &webhook.Error{
			Code: webhook.CodeRateLimited, RetryAfter: answerRetryAfter,
			Message: "the answers that are being written to the tenant have reached their limit of " + megabytes(maxTenantAnswers) +
				": read them faster, or fewer at a time",
		}
	}
	return &webhook.Error{
		Code: webhook.CodeUnavailable, RetryAfter: answerRetryAfter, Message: "the answers that are being written have reached their limit",
	}
}

// fit makes the room that of an answer of n bytes. It never fails: what goes beyond the room keeps the tenant from more.
// A small answer without room needs none.
func (r *answerRoom) fit(n int) {
	steps := stepsOf(n)
	if r.held == 0 && steps <= 1 {
		return
	}
	r.of.budget.Resize(r.tenant, r.held, steps)
	r.held = steps
}

// release returns the room. It may be called more than once.
func (r *answerRoom) release() {
	if r.held > 0 {
		r.of.budget.Release(r.tenant, r.held)
		r.held = 0
	}
}

// encoder waits for a processor that may encode a list, and returns it with done.
func (r *answerRoom) encoder(ctx context.Context) (done func(), err error) {
	if !r.of.encoders.Acquire(ctx, r.tenant, 1, encodeWait) {
		return nil, &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: answerRetryAfter, Message: "too many answers are being made at the moment"}
	}
	return func() { r.of.encoders.Release(r.tenant, 1) }, nil
}

func stepsOf(n int) int { return max(1, (n+answerStep-1)/answerStep) }

// pacedWriter writes to a client that has to read at a pace. Only the time of writing counts.
type pacedWriter struct {
	to         io.Writer
	connection *http.ResponseController
	credit     time.Duration // that the client may take
}

func newPacedWriter(to http.ResponseWriter) *pacedWriter {
	return &pacedWriter{to: to, connection: http.NewResponseController(to), credit: answerGrace}
}

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = w.step(func() (int, error) { return w.to.Write(p[n:min(len(p), n+answerStep)]) })
		n += m
	}
	return n, err
}

// flush sends what net/http buffers.
func (w *pacedWriter) flush() error {
	_, err := w.step(func() (int, error) { return 0, w.connection.Flush() })
	return err
}

// step writes up to answerStep bytes within the time that the client has.
func (w *pacedWriter) step(write func() (int, error)) (int, error) {
	begun := time.Now()
	_ = w.connection.SetWriteDeadline(begun.Add(w.credit)) // an error: the request has no connection, as in the console
	n, err := write()
	gained := time.Duration(n) * time.Second / answerRate
	w.credit = min(w.credit+gained-time.Since(begun), answerPause)
	return n, err
}

// pageWriter encodes a page of a list entry by entry.
type pageWriter struct{ text bytes.Buffer }

const pageBegin = `{"data":[`

// add adds an entry. It returns false, and adds nothing, if the page would become too large with it and has another.
func (w *pageWriter) add(entry any) (bool, error) {
	text, err := encodeJSON(entry)
	if err != nil {
		return false, fmt.Errorf("encode an entry: %w", err)
	}
	text = bytes.TrimSuffix(text, []byte{'\n'})
	switch {
	case w.text.Len() == 0:
		w.text.WriteString(pageBegin)
	case w.text.Len()+len(text) > maxPageBytes:
		return false, nil
	default:
		w.text.WriteByte(',')
	}
	w.text.Write(text)
	return true, nil
}

// end returns the page. next is its next_cursor; "" for null.
func (w *pageWriter) end(next string) []byte {
	if w.text.Len() == 0 {
		w.text.WriteString(pageBegin)
	}
	w.text.WriteString(`],"next_cursor":`)
	if next == "" {
		w.text.WriteString("null}\n")
	} else {
		w.text.WriteString(`"` + next + "\"}\n") // base64url
	}
	return w.text.Bytes()
}
