package cli

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

	"github.com/everpost/everpost/internal/signature"
)

const (
	mostTurns  = 100_000 // webhook-ids whose requests are counted; the oldest are forgotten
	mostHeader = 128
)

// What a receiver says of a signature.
const (
	signatureOK        = "ok"
	signatureBad       = "bad"
	signatureUnchecked = "unchecked"
)

// receiver answers requests as it was told, and prints them.
type receiver struct {
	out        io.Writer
	keys       []signature.Key
	status     int // the answer; to the first requests of an id when first is not 0
	first      int
	retryAfter string // with that answer; "" for none
	delay      time.Duration
	body       bool
	stopping   <-chan struct{}

	mu       sync.Mutex // guards all below, and out
	turns    map[string]int
	order    []string // of turns, oldest first
	answers  map[int]int
	verdicts map[string]int
}

// ServeHTTP answers one request.
func (r *receiver) ServeHTTP(w http.ResponseWriter, asked *http.Request) {
	at := time.Now()
	body, status := readBody(w, asked)
	id := cmp.Or(asked.Header.Get(signature.HeaderID), asked.Header.Get(signature.HeaderHexIdempotency))
	verdict, why := r.verify(asked.Header, body, at)
	retryAfter := ""
	switch {
	case status != 0: // the body could not be read
	case asked.Method != http.MethodPost:
		status = http.StatusMethodNotAllowed
		w.Header().Set("Allow", http.MethodPost)
	default:
		status, retryAfter = r.answer(id)
	}
	gone := r.wait(asked)
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	said := strconv.Itoa(status)
	if retryAfter != "" {
		said += ", Retry-After " + retryAfter
	}
	if gone {
		said = fmt.Sprintf("no answer: the sender left after %s", time.Since(at).Round(time.Millisecond))
		status = 0
	}
	line := fmt.Sprintf("%s  %s  attempt %s  %s  signature %s  %s", at.UTC().Format(clockTime),
		shown(asked.Header.Get("everpost-event-type")), shown(asked.Header.Get("everpost-attempt")), shown(id), verdict+why, said)
	if asked.Method != http.MethodPost {
		line += "  (" + shown(asked.Method) + ")"
	}
	if r.body {
		line += "\n  " + readable(body)
	}
	r.note(line, status, verdict)
	if status != 0 {
		w.WriteHeader(status)
	}
}

// answer is what a request of an id is answered with.
func (r *receiver) answer(id string) (status int, retryAfter string) {
	if r.first == 0 {
		return r.status, r.retryAfter
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	turn, known := r.turns[id]
	if !known {
		if len(r.order) == mostTurns {
			delete(r.turns, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, id)
	}
	r.turns[id] = turn + 1
	if turn < r.first {
		return r.status, r.retryAfter
	}
	return http.StatusOK, ""
}

// wait waits for as long as it was told, and reports whether the sender left meanwhile.
func (r *receiver) wait(asked *http.Request) (gone bool) {
	if r.delay > 0 {
		timer := time.NewTimer(r.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-asked.Context().Done():
		case <-r.stopping:
		}
	}
	return asked.Context().Err() != nil
}

// verify says whether a request is signed with one of the keys, and if not, why.
func (r *receiver) verify(h http.Header, body []byte, now time.Time) (verdict, why string) {
	if len(r.keys) == 0 {
		return signatureUnchecked, ""
	}
	message := signature.Message{
		ID: h.Get(signature.HeaderID), Timestamp: h.Get(signature.HeaderTimestamp), Signature: h.Get(signature.HeaderSignature), Body: body,
	}
	err := signature.Verify(message, now, 0, r.keys...)
	if header := h.Get(signature.HeaderHexSignature); header != "" && message.Signature == "" {
		err = r.verifyHex(header, body)
	}
	if err == nil {
		return signatureOK, ""
	}
	return signatureBad, " (" + cmp.Or(errors.Unwrap(err), err).Error() + ")"
}

// verifyHex verifies the older scheme, which knows secrets only.
func (r *receiver) verifyHex(header string, body []byte) error {
	err := signature.ErrNoHMACSecret
	for _, key := range r.keys {
		if secret, ok := key.(signature.Secret); ok {
			if err = signature.VerifyHex(header, body, secret); err == nil {
				return nil
			}
		}
	}
	return err
}

// note prints a request and counts it.
func (r *receiver) note(line string, status int, verdict string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.out, line)
	r.answers[status]++
	r.verdicts[verdict]++
}

// print prints a line.
func (r *receiver) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.out, line)
}

// count says how many requests there were, and what became of them.
func (r *receiver) count() string {
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

// shown is a header's value as it is printed: anyone may send anything.
func shown(value string) string {
	if len(value) > mostHeader {
		value = value[:mostHeader] + "…"
	}
	return orDash(plain(value))
}

// readable is a payload as it is printed: its lines indented, and nothing in them that
// steers a terminal.
func readable(body []byte) string {
	lines := strings.Split(strings.TrimRight(string(body), "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = plain(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n  ")
}
