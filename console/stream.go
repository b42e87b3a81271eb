package console

import (
	"bytes"
	"crypto/sha256"
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
