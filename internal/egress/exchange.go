package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// reusedEndsWithin is how long after the first byte of a request the end of a kept connection still means that the
// receiver has closed it because it was idle: longer than most network paths take to and fro.
const reusedEndsWithin = 500 * time.Millisecond

// inlineBytes is the largest body for which the request is written before the response is
// read. Longer requests are written concurrently: a receiver may respond without reading
// them, and both sides would block.
const inlineBytes = 16 << 10

// smallestRequest is less than the header of any request that the client sends: a receiver
// that has fewer bytes has nothing to act on.
const smallestRequest = 64

// exchange writes the request, reads the response, and keeps the connection or closes it.
//
// untouched reports that the connection was kept from an earlier request and that the
// receiver certainly got nothing of this one, so it may be written again on another
// connection. That is certain in two cases. Either nothing was handed to the kernel. Or the
// receiver ended the connection (FIN, not RST) without a response, and its TCP has
// acknowledged none of the request's bytes: a FIN sent after the request arrived would have
// acknowledged it, so this one was sent before. A reset proves nothing, because it may
// overtake a delayed acknowledgement.
//
// The time that it takes is added to times.
func (c *Client) exchange(ctx context.Context, deadline time.Time, cn *conn, head []byte, r *Request, times *webhook.Times,
) (_ Response, untouched bool) {
	defer addSince(&times.Waiting, time.Now())
	x := &exchanging{conn: cn, reused: cn.used, in: &limitedReader{conn: cn, left: MaxHeaderBytes}}
	if x.reused {
		x.ackedBefore = acknowledged(cn.tcp)
	}
	cn.used = true
	if err := cn.SetDeadline(deadline); err != nil {
		cn.discard()
		return failed(ctx, phaseHeaders, err), x.reused
	}
	// Any past time works as the deadline; one long past needs no timer.
	stop := context.AfterFunc(ctx, func() { _ = cn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	x.out = c.startWriting(cn, head, r.Body)
	br, _ := c.readers.Get().(*bufio.Reader) // the pool holds nothing else
	br.Reset(x.in)
	defer func() {
		br.Reset(nil)
		c.readers.Put(br)
	}()

	answer, err := readHead(br)
	if answer == nil {
		response, untouched := x.unanswered(ctx, err)
		if untouched || response.ReusedEnded {
			c.pool.closedByReceiver(cn, x.out.sent.first)
		}
		return response, untouched
	}
	response := answer.response()
	if status := response.Answer.Status; status == http.StatusUnauthorized || status == http.StatusForbidden {
		response.CertificateUnasked = cn.unasked()
	}
	reusable := false
	if err != nil {
		response = withFailure(ctx, response, phaseFields, err)
	} else if reusable, err = x.readBody(deadline, br, answer, &response, cmp.Or(r.stored, MaxStoredBytes)); err != nil {
		response = withFailure(ctx, response, phaseBody, err)
	}

	now := time.Now()
	cn.until = now.Add(c.pool.idleTime(cn.id.endpoint, c.idleTime(answer), now))
	if stop() && reusable && br.Buffered() == 0 && x.out.finished() && cn.noPendingData(false) {
		c.pool.put(cn, cmp.Or(r.MaxIdle, DefaultMaxIdle), now)
	} else {
		cn.discard()
		_, _ = x.out.wait() // a response came: errors of writing the rest do not matter
	}
	return response, false
}

// addSince adds the time that has passed.
func addSince(sum *time.Duration, begin time.Time) { *sum += time.Since(begin) }

// idleTime is how long the connection may stay idle. A receiver that says how long it keeps idle
// connections gets a second for the network.
func (c *Client) idleTime(answer *responseHead) time.Duration {
	if answer.keepAlive == 0 {
		return c.config.IdleTimeout
	}
	return min(c.config.IdleTimeout, answer.keepAlive-time.Second)
}

// exchanging is one request under way on a connection.
type exchanging struct {
	conn        *conn
	reused      bool   // the connection was kept from an earlier request
	ackedBefore uint64 // by the receiver's TCP before the request; 0 when unknown, or not reused
	in          *limitedReader
	out         *writing
}

// readBody reads the body, stores as many bytes of it as are given, and reports whether the connection may be kept after it.
func (x *exchanging) readBody(deadline time.Time, br *bufio.Reader, answer *responseHead, response *Response, stored int) (reusable bool, err error) {
	x.in.left = maxBodyWireBytes
	if answer.framing() == framedInDoubt {
		if soon := time.Now().Add(rawTime); soon.Before(deadline) {
			deadline = soon
		}
		if err := x.conn.SetReadDeadline(deadline); err != nil {
			return false, fmt.Errorf("read body: %w", err)
		}
	}
	whole, err := readBody(br, answer, response, stored)
	return whole && answer.keeps(), err
}

// unanswered closes the connection after readHead's error and returns the response, and
// untouched as in exchange.
func (x *exchanging) unanswered(ctx context.Context, err error) (_ Response, untouched bool) {
	now, silent := time.Now(), x.in.total == 0
	ended := silent && errors.Is(err, io.EOF)
	unacked := x.ackedBefore > 0 && acknowledged(x.conn.tcp)-x.ackedBefore < smallestRequest
	x.conn.discard()
	written, writeErr := x.out.wait()

	unsent := written == 0 && writeErr != nil
	if x.reused && silent && ctx.Err() == nil && (unsent || ended && unacked) {
		return Response{}, true
	}
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(writeErr, syscall.ECONNRESET) || errors.Is(writeErr, syscall.EPIPE)
	if writeErr != nil && silent && !isTimeout(err) {
		err = writeErr // the cause; what was read is its consequence
	}
	response := failed(ctx, phaseHeaders, x.conn.withSession(err))
	response.ReusedEnded = x.reused && silent && ctx.Err() == nil && (ended || reset) && now.Sub(x.out.sent.first) <= reusedEndsWithin
	return response, false
}

// limitedReader bounds what is read of the response, and counts it.
type limitedReader struct {
	conn  io.Reader
	left  int
	total int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLarge
	}
	n, err := l.conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	l.total += n
	return n, err //nolint:wrapcheck // io.Reader: io.EOF must stay itself
}

// writing is the state of writing a request.
type writing struct {
	sent countingWriter
	err  error
	done chan struct{} // closed when writing ends; nil when written inline
}

// wait returns when writing has ended. Closing the connection makes it end.
func (w *writing) wait() (written int, err error) {
	if w.done != nil {
		<-w.done
	}
	return w.sent.n, w.err
}

// finished reports whether the whole request has been written, without waiting.
func (w *writing) finished() bool {
	if w.done != nil {
		select {
		case <-w.done:
		default:
			return false
		}
	}
	return w.err == nil
}

func (c *Client) startWriting(cn *conn, head, body []byte) *writing {
	w := &writing{sent: countingWriter{w: cn}}
	if len(body) <= inlineBytes {
		c.write(w, head, body)
		return w
	}
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		c.write(w, head, body)
	}()
	return w
}

func (c *Client) write(w *writing, head, body []byte) {
	bw, _ := c.writers.Get().(*bufio.Writer) // the pool holds nothing else
	bw.Reset(&w.sent)
	_, err := bw.Write(head)
	if err == nil {
		_, err = io.Copy(bw, failpoint.HitWhenRead("send-mid-body", inlineBytes, bytes.NewReader(body)))
	}
	if err == nil {
		err = bw.Flush()
	}
	if err != nil {
		w.err = fmt.Errorf("write request: %w", err)
	}
	bw.Reset(nil)
	c.writers.Put(bw)
}

type countingWriter struct {
	w     io.Writer
	n     int
	first time.Time // when the first byte was written
}

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.first.IsZero() {
		c.first = time.Now()
	}
	n, err := c.w.Write(p)
	c.n += n
	return n, err //nolint:wrapcheck // io.Writer: the caller wraps
}
