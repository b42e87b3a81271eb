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
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// inlineBytes is the largest body for which the request is written before the response is
// read. Longer requests are written concurrently: a receiver may respond without reading
// them, and both sides would block.
const inlineBytes = 16 << 10

// smallestRequest is less than the header of any request that the client sends: a receiver
// that has fewer bytes has nothing to act on.
const smallestRequest = 64

var errTooLarge = errors.New("headers above 32 KiB")

// exchange writes the request, reads the response, and keeps the connection or closes it.
//
// untouched reports that the connection was kept from an earlier request and that the
// receiver certainly got nothing of this one, so it may be written again on another
// connection. That is certain in two cases. Either nothing was handed to the kernel. Or the
// receiver ended the connection (FIN, not RST) without a response, and its TCP has
// acknowledged none of the request's bytes: a FIN sent after the request arrived would have
// acknowledged it, so this one was sent before. A reset proves nothing, because it may
// overtake a delayed acknowledgement.
func (c *Client) exchange(ctx context.Context, deadline time.Time, cn *conn, req *http.Request, r *Request) (_ Response, untouched bool) {
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

	rewind(req, r.Body)
	x.out = c.startWriting(cn, req)
	br, _ := c.readers.Get().(*bufio.Reader) // the pool holds nothing else
	br.Reset(x.in)
	defer func() {
		br.Reset(nil)
		c.readers.Put(br)
	}()

	head, err := readHead(br, x.in, req) //nolint:bodyclose // Close would read an endless body to its end; the connection is closed instead
	if err != nil {
		return x.unanswered(ctx, err)
	}

	response := answered(head)
	x.in.left = maxBodyWireBytes
	whole, err := readBody(head, &response)
	if err != nil {
		response = withFailure(ctx, response, phaseBody, err)
	}

	now := time.Now()
	cn.until = now.Add(keepAliveHint(head.Header, c.config.IdleTimeout))
	reusable := whole && !head.Close && head.StatusCode >= 200 && br.Buffered() == 0 && len(x.in.ahead) == 0 && x.out.finished()
	if stop() && reusable && cn.noPendingData(false) {
		c.pool.put(cn, cmp.Or(r.MaxIdle, DefaultMaxIdle), now)
	} else {
		cn.discard()
		_, _ = x.out.wait() // a response came: errors of writing the rest do not matter
	}
	response.Header = storableHeader(head.Header)
	return response, false
}

// exchanging is one request under way on a connection.
type exchanging struct {
	conn        *conn
	reused      bool   // the connection was kept from an earlier request
	ackedBefore uint64 // by the receiver's TCP before the request; 0 when unknown, or not reused
	in          *limitedReader
	out         *writing
}

// unanswered closes the connection after readHead's error and returns the response, and
// untouched as in exchange.
func (x *exchanging) unanswered(ctx context.Context, err error) (_ Response, untouched bool) {
	silent := x.in.total == 0
	ended := silent && errors.Is(err, io.EOF)
	unacked := x.ackedBefore > 0 && acknowledged(x.conn.tcp)-x.ackedBefore < smallestRequest
	x.conn.discard()
	written, writeErr := x.out.wait()

	unsent := written == 0 && writeErr != nil
	if x.reused && silent && ctx.Err() == nil && (unsent || ended && unacked) {
		return Response{}, true
	}
	if writeErr != nil && silent && !isTimeout(err) {
		err = writeErr // the cause; what was read is its consequence
	}
	return failed(ctx, phaseHeaders, err), false
}

// answered is the response for a head, without the header fields.
func answered(head *http.Response) Response {
	h := head.Header
	return Response{Answer: retry.Answer{
		Status:     head.StatusCode,
		RetryAfter: h.Get("Retry-After"),
		Date:       h.Get("Date"),
		ReceivedAt: time.Now(),
		// Drafts 0 to 6 of the IETF's RateLimit fields use one field for each value.
		RateLimitRemaining: cmp.Or(h.Get("X-Ratelimit-Remaining"), h.Get("Ratelimit-Remaining")),
		RateLimitReset:     cmp.Or(h.Get("X-Ratelimit-Reset"), h.Get("Ratelimit-Reset")),
		RateLimit:          strings.Join(h.Values("Ratelimit"), ", "), // a list: RFC 9110, section 5.3
	}}
}

// readBody reads the body within its bounds into the response. whole reports that its end
// was reached. A 101 has no body: what follows it is not read.
func readBody(head *http.Response, response *Response) (whole bool, err error) {
	if head.Body == http.NoBody {
		return true, nil
	}
	var stored bytes.Buffer
	n, err := io.Copy(&stored, io.LimitReader(head.Body, MaxStoredBytes+1))
	whole = n <= MaxStoredBytes && err == nil
	if n > MaxStoredBytes {
		response.Truncated = true
		stored.Truncate(MaxStoredBytes)
		const rest = MaxBodyBytes - MaxStoredBytes - 1
		if n, err = io.Copy(io.Discard, io.LimitReader(head.Body, rest)); err == nil {
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

// limitedReader bounds what is read of the response, counts it, and remembers the last
// error.
type limitedReader struct {
	conn  io.Reader
	left  int
	total int
	err   error

	ahead []byte // already counted, read first
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if len(l.ahead) > 0 {
		n := copy(p, l.ahead)
		if l.ahead = l.ahead[n:]; len(l.ahead) == 0 {
			l.ahead = nil // the body may take long
		}
		return n, nil
	}
	if l.left <= 0 {
		l.err = errTooLarge
		return 0, l.err
	}
	n, err := l.conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	l.total += n
	l.err = err
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

func (c *Client) startWriting(cn *conn, req *http.Request) *writing {
	w := &writing{sent: countingWriter{w: cn}}
	if req.ContentLength <= inlineBytes {
		c.write(w, req)
		return w
	}
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		c.write(w, req)
	}()
	return w
}

func (c *Client) write(w *writing, req *http.Request) {
	bw, _ := c.writers.Get().(*bufio.Writer) // the pool holds nothing else
	bw.Reset(&w.sent)
	err := req.Write(bw)
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
	w io.Writer
	n int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err //nolint:wrapcheck // io.Writer: the caller wraps
}
