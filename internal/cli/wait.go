package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// How often --wait asks: soon after something happened, then less and less.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// waiter follows the deliveries of one event until they rest.
type waiter struct {
	*session

	event accepted
	shown map[string]int      // attempts of a delivery that were printed
	ended map[string]delivery // deliveries at rest
	last  map[string]delivery // as the last poll saw them
	fault error               // of the last poll; nil when it was answered
}

// await waits until every delivery of the event rests, and prints its attempts and
// its end. The error names what was not delivered, or what does not rest in time.
func (s *session) await(ctx context.Context, event accepted, posted answer, patience time.Duration) error {
	if !s.json {
		if err := s.announce(event, posted); err != nil {
			return err
		}
	}
	w := &waiter{session: s, event: event, shown: map[string]int{}, ended: map[string]delivery{}, last: map[string]delivery{}}
	verdict := w.follow(ctx, patience)
	if s.json && ctx.Err() == nil {
		if err := s.record(ctx, request{method: http.MethodGet, path: []string{"events", event.ID}}); err != nil {
			return err
		}
	}
	return verdict
}

func (w *waiter) follow(ctx context.Context, patience time.Duration) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	pause := firstPoll
	for {
		news, err := w.poll(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %s is stored and goes on being delivered", plain(w.event.ID))
		}
		if err != nil && !passing(err) {
			return err
		}
		w.fault = err
		if err == nil && len(w.ended) == len(w.event.Deliveries) {
			return w.verdict()
		}
		if pause = min(pause*3/2, lastPoll); news {
			pause = firstPoll
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done(): // the next poll says so
			next.Stop()
		case <-limit.C:
			next.Stop()
			return w.late(patience)
		}
	}
}

// poll looks at every delivery once and prints what is new.
func (w *waiter) poll(ctx context.Context) (news bool, err error) {
	if len(w.event.Deliveries) == 0 {
		return false, nil
	}
	entries, _, err := w.collect(ctx, request{path: []string{"deliveries"}, query: url.Values{"event_id": {w.event.ID}}}, paging{Limit: mostShown})
	if err != nil {
		return false, err
	}
	for _, raw := range slices.Backward(entries) { // oldest first
		d, err := decode[delivery](answer{body: raw})
		if err != nil {
			return news, err
		}
		w.last[d.ID] = d
		if d.Attempts > w.shown[d.ID] {
			news = true
			if err := w.attempts(ctx, d); err != nil {
				return news, err
			}
		}
		if _, known := w.ended[d.ID]; !known && d.resting() {
			news, w.ended[d.ID] = true, d
			w.say(d.CompletedAt, fmt.Sprintf("%s  %s", d.ID, d.State))
		}
	}
	return news, nil
}

// attempts prints the attempts of a delivery that were not printed yet.
func (w *waiter) attempts(ctx context.Context, d delivery) error {
	entries, _, err := w.collect(ctx, request{path: []string{"deliveries", d.ID, "attempts"}}, paging{Limit: max(d.Attempts-w.shown[d.ID], 1)})
	if err != nil {
		return err
	}
	for _, raw := range slices.Backward(entries) {
		a, err := decode[attempt](answer{body: raw})
		if err != nil {
			return err
		}
		if a.Number > w.shown[d.ID] {
			w.shown[d.ID] = a.Number
			w.say(a.StartedAt, fmt.Sprintf("%s  attempt %d  %s", d.ID, a.Number, a.inWords()))
		}
	}
	return nil
}

// say prints a line of progress with the time of what happened; with --json only the
// end is printed.
func (w *waiter) say(at *time.Time, text string) {
	if w.json {
		return
	}
	clock := "-"
	if at != nil {
		clock = at.UTC().Format(clockTime)
	}
	_ = w.line(clock + "  " + plain(text)) // progress: the verdict is the exit code
}

// verdict names what was not delivered.
func (w *waiter) verdict() error {
	var not []string
	for _, stub := range w.event.Deliveries {
		if d := w.ended[stub.ID]; d.State != webhook.StateDelivered.String() {
			not = append(not, fmt.Sprintf("%s is %s (%s)", d.ID, d.State, orDash(d.reason())))
		}
	}
	if len(not) == 0 {
		return nil
	}
	return errors.New("not delivered: " + several(not))
}

// late names what is still under way, and why that is not known better.
func (w *waiter) late(patience time.Duration) error {
	var open []string
	for _, stub := range w.event.Deliveries {
		if _, done := w.ended[stub.ID]; done {
			continue
		}
		text := stub.ID + " is " + stub.State
		if d, seen := w.last[stub.ID]; seen {
			text = fmt.Sprintf("%s is %s", d.ID, d.State)
			if d.NextAttemptAt != nil {
				text += ", next attempt at " + moments(d.NextAttemptAt)
			}
		}
		open = append(open, text)
	}
	err := fmt.Errorf("not at rest after %s, and goes on being delivered: %s", patience, several(open))
	if w.fault != nil {
		return fmt.Errorf("%w; the last look failed: %w", err, w.fault)
	}
	return err
}

// several joins a few texts and counts the rest.
func several(texts []string) string {
	const few = 3
	shown := plain(strings.Join(texts[:min(len(texts), few)], ", "))
	if more := len(texts) - few; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}
