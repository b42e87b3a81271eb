package admission

import (
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	windowParts = 5
	recentPart  = 3 * time.Minute // of 15 minutes
)

// window counts over a rolling window of time, in parts that are forgotten one after another.
type window[T any] struct {
	parts   [windowParts]T
	current int64 // the number of the current part, since the controller was made
}

// at forgets the parts that are outside of the window, each of which has the given length, and
// returns the current one.
func (w *window[T]) at(now, length time.Duration) *T {
	part := int64(now / length)
	for n := 0; w.current < part && n < windowParts; n++ {
		w.current++
		clear(w.parts[w.current%windowParts : w.current%windowParts+1])
	}
	w.current = part
	return &w.parts[part%windowParts]
}

// recent counts the attempts of the last 15 minutes (12 to 15, as the count rolls).
type recent struct {
	window[struct{ delivered, failed, first, retries uint32 }]

	successStreak, failureStreak int

	failing     *failures // nil unless the last attempt failed
	deliveredAt time.Duration

	redirects *redirects // nil unless one counted as delivered
}

// failures is a streak of failures that is not over.
type failures struct {
	since, last time.Duration
	reason      retry.Reason // of the last one
	error       string       // of the last one, at most maxError bytes
	times       webhook.Times
}

// failuresKept is for how long it is known that the last attempt failed, if none follows. What an endpoint refuses for good is not retried; that does
// not make the endpoint healthy.
const failuresKept = 24 * time.Hour

// failed reports whether the last attempt, of the last 24 h, failed.
func (r *recent) failed(now time.Duration) bool {
	return r.failing != nil && now-r.failing.last < failuresKept
}

// maxError bounds what is kept of the error of an endpoint's last failure.
const maxError = 200

func (r *recent) count(now time.Duration, result *Result) {
	part := r.at(now, recentPart)
	if result.Delivered {
		part.delivered++
		r.successStreak++
		r.failureStreak, r.failing, r.deliveredAt = 0, nil, now
		r.redirects = r.redirects.note(now, result.Error)
	} else {
		part.failed++
		if r.failing == nil {
			r.failing = &failures{since: now}
		}
		f := r.failing
		f.times = result.Times
		f.last, f.reason, f.error = now, result.Reason, strings.ToValidUTF8(result.Error[:min(len(result.Error), maxError)], "")
		r.failureStreak++
		r.successStreak = 0
	}
	if result.Number > 1 {
		part.retries++
	} else {
		part.first++
	}
}

func (r *recent) sum(now time.Duration) (delivered, failed, first, retries int) {
	r.at(now, recentPart)
	for i := range r.parts {
		delivered += int(r.parts[i].delivered)
		failed += int(r.parts[i].failed)
		first += int(r.parts[i].first)
		retries += int(r.parts[i].retries)
	}
	return delivered, failed, first, retries
}
