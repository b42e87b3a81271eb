package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"
)

const (
	eventStream = "text/event-stream"
	liveRest    = 50               // times as long as a look took, but at most liveEvery, no other begins: 2 % of the time
	liveEvery   = 2 * time.Second  // between the end of one look and the next
	liveBeat    = 15 * time.Second // at the latest something is sent, so that a dead peer is noticed
	liveLife    = 10 * time.Minute // then the browser connects again
	liveWrite   = 10 * time.Second // for one write
)

// stream is a page whose live part is sent again whenever it has changed.
type stream struct {
	w    http.ResponseWriter
	last [sha256.Size]byte
	sent time.Time
	over bool // the page cannot be shown any more
}

// stream answers a script that follows a page. Each look finds the session again, so that a stream ends
// with its session.
func (s *Console) stream(w http.ResponseWriter, r *http.Request, of route) {
	p := s.newPage(w, r)
	if err := p.signIn(); err != nil || !p.session.signedIn() || r.Method != http.MethodGet || of.access == public {
		w.WriteHeader(http.StatusNoContent) // the browser does not try again
		return
	}
	leave, free := s.streams.enter(r.Context(), p.session)
	if !free {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("X-Accel-Buffering", "no") // nginx: pass it on at once
	// The server's deadline for reading a request would end the stream. An error: there is no connection, as in tests.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	live := &stream{w: w}
	end := time.NewTimer(liveLife)
	defer end.Stop()
	tick := time.NewTimer(liveEvery)
	defer tick.Stop()
	for live.beat() {
		select {
		case <-end.C:
			return
		case <-s.streams.done:
			return
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		s.look(live, r, of)
		if live.over {
			live.write("event: end\ndata:\n\n") // else the browser would come again
			return
		}
		tick.Reset(liveEvery)
	}
}

// look makes the page once more and sends its live part if it has changed.
func (s *Console) look(live *stream, r *http.Request, of route) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	p := s.newPage(&answer{header: http.Header{}}, r.WithContext(ctx))
	p.live = live
	err := p.run(of) //nolint:contextcheck // the page's request has the context
	if err == nil {
		return
	}
	if known, ok := errors.AsType[*problem](err); ok && known.Status < http.StatusInternalServerError {
		live.over = true // gone, or not allowed any more; anything else may pass
	}
}

// send sends the live part of a page if it differs from what was sent.
func (l *stream) send(html []byte) {
	sum := sha256.Sum256(html)
	if sum == l.last {
		return
	}
	l.last = sum
	var b bytes.Buffer
	b.WriteString("event: live\n")
	for line := range bytes.SplitSeq(bytes.TrimSpace(html), []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	l.write(b.String())
}

// beat writes a comment if nothing was sent for long. It reports whether the browser is still there.
func (l *stream) beat() bool {
	if !l.over && time.Since(l.sent) >= liveBeat {
		l.write(": hello\n\n")
	}
	return !l.over
}

// write writes and flushes.
func (l *stream) write(text string) {
	control := http.NewResponseController(l.w)
	_ = control.SetWriteDeadline(time.Now().Add(liveWrite)) // an error: there is no connection, as in tests
	if _, err := l.w.Write([]byte(text)); err != nil {
		l.over = true
		return
	}
	l.sent = time.Now()
	if control.Flush() != nil {
		l.over = true
	}
}
