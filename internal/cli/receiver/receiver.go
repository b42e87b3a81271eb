// Package receiver is the webhook receiver behind "everpost listen": it verifies signatures, prints requests
// and responds as configured.
package receiver

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/signature"
)

const (
	maxBody        = 8 << 20 // twice the largest payload
	clockTime      = "15:04:05.000"
	maxTrackedIDs  = 100_000 // webhook-ids whose requests are counted; the oldest are dropped
	maxShownHeader = 128
)

// Results of a signature check.
const (
	signatureOK        = "ok"
	signatureBad       = "bad"
	signatureUnchecked = "unchecked"
)

// Config says how a receiver responds and what it prints.
type Config struct {
	Out        io.Writer
	Keys       []signature.Key // to verify signatures with; without any, they are not checked
	Status     int             // of the response
	First      int             // respond so only to the first requests of each webhook-id, then with 200; 0: to all
	RetryAfter string          // sent with that response; "" for none
	Delay      time.Duration   // before every response
	Body       bool            // print payloads, too
	Stopping   <-chan struct{} // ends delays when it is closed
}

// Receiver responds to requests as configured and prints them.
type Receiver struct {
	config Config

	mu       sync.Mutex // guards the fields below, and the output
	requests map[string]int
	order    []string // keys of requests, oldest first
	answers  map[int]int
	verdicts map[string]int
}

// New returns a receiver.
func New(c Config) *Receiver {
	return &Receiver{config: c, requests: map[string]int{}, answers: map[int]int{}, verdicts: map[string]int{}}
}

// ServeHTTP responds to one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	body, status := readBody(w, req)
	id := cmp.Or(req.Header.Get(signature.HeaderID), req.Header.Get(signature.HeaderHexIdempotency))
	verdict, why := r.verify(req.Header, body, at)
	retryAfter := ""
	switch {
	case status != 0: // the body could not be read
	case req.Method != http.MethodPost:
		status = http.StatusMethodNotAllowed
		w.Header().Set("Allow", http.MethodPost)
	default:
		status, retryAfter = r.answer(id)
	}
	gone := r.wait(req)
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	reply := strconv.Itoa(status)
	if retryAfter != "" {
		reply += ", Retry-After " + retryAfter
	}
	if gone {
		reply = fmt.Sprintf("no answer: the sender left after %s", time.Since(at).Round(time.Millisecond))
		status = 0
	}
	line := fmt.Sprintf("%s  %s  attempt %s  %s  signature %s  %s", at.UTC().Format(clockTime),
		shown(req.Header.Get("everpost-event-type")), shown(req.Header.Get("everpost-attempt")), shown(id), verdict+why, reply)
	if req.Method != http.MethodPost {
		line += "  (" + shown(req.Method) + ")"
	}
	if r.config.Body {
		line += "\n  " + readable(body)
	}
	r.note(line, status, verdict)
	if status != 0 {
		w.WriteHeader(status)
	}
}

// answer returns the response to a request with that id.
func (r *Receiver) answer(id string) (status int, retryAfter string) {
	if r.config.First == 0 {
		return r.config.Status, r.config.RetryAfter
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	count, known := r.requests[id]
	if !known {
		if len(r.order) == maxTrackedIDs {
			delete(r.requests, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, id)
	}
	r.requests[id] = count + 1
	if count < r.config.First {
		return r.config.Status, r.config.RetryAfter
	}
	return http.StatusOK, ""
}

// wait waits for the delay and reports whether the sender disconnected meanwhile.
func (r *Receiver) wait(req *http.Request) (gone bool) {
	if r.config.Delay > 0 {
		timer := time.NewTimer(r.config.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
		case <-r.config.Stopping:
		}
	}
	return req.Context().Err() != nil
}

// verify checks the signature with the keys and returns the reason if it is not valid.
func (r *Receiver) verify(h http.Header, body []byte, now time.Time) (verdict, why string) {
	if len(r.config.Keys) == 0 {
		return signatureUnchecked, ""
	}
	message := signature.Message{
		ID: h.Get(signature.HeaderID), Timestamp: h.Get(signature.HeaderTimestamp), Signature: h.Get(signature.HeaderSignature), Body: body,
	}
	err := signature.Verify(message, now, 0, r.config.Keys...)
	if header := h.Get(signature.HeaderHexSignature); header != "" && message.Signature == "" {
		err = r.verifyHex(header, body)
	}
	if err == nil {
		return signatureOK, ""
	}
	return signatureBad, " (" + cmp.Or(errors.Unwrap(err), err).Error() + ")"
}

// verifyHex checks the signature of the hex scheme, which only uses secrets.
func (r *Receiver) verifyHex(header string, body []byte) error {
	err := signature.ErrNoHMACSecret
	for _, key := range r.config.Keys {
		if secret, ok := key.(signature.Secret); ok {
			if err = signature.VerifyHex(header, body, secret); err == nil {
				return nil
			}
		}
	}
	return err
}

// note prints a request and counts it.
func (r *Receiver) note(line string, status int, verdict string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.config.Out, line)
	r.answers[status]++
	r.verdicts[verdict]++
}

// Print prints a line.
func (r *Receiver) Print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.config.Out, line)
}

// Summary summarises the requests and their responses.
func (r *Receiver) Summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	total, parts := 0, []string{}
	for _, status := range slices.Sorted(maps.Keys(r.answers)) {
		n := r.answers[status]
		total += n
		if status == 0 {
			parts = append(parts, fmt.Sprintf("%d not answered", n))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d answered %d", n, status))
	}
	for _, verdict := range []string{signatureOK, signatureBad, signatureUnchecked} {
		if n := r.verdicts[verdict]; n > 0 {
			parts = append(parts, fmt.Sprintf("signature %s %d", verdict, n))
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d requests: %s", total, strings.Join(parts, ", ")), ": ")
}

// shown makes a header's value printable: a sender may send any bytes.
func shown(value string) string {
	if len(value) > maxShownHeader {
		value = value[:maxShownHeader] + "…"
	}
	return cmp.Or(printable.Text(value), "-")
}

// readable makes a payload printable: indented, and without terminal control characters.
func readable(body []byte) string {
	lines := strings.Split(strings.TrimRight(string(body), "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = printable.Text(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n  ")
}

// readBody reads a request's body. status is the status to respond with when it cannot be
// read, else 0.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, http.StatusRequestEntityTooLarge
	}
	if err != nil {
		return nil, http.StatusBadRequest
	}
	return body, 0
}
