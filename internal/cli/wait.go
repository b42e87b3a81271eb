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

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// How often --wait polls: soon after a change, then less and less often.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// waiter follows the deliveries of one event until they have ended.
type waiter struct {
	*session

	event client.AcceptedEvent
	shown map[string]int             // attempts of a delivery that were printed
	ended map[string]client.Delivery // deliveries that have ended
	last  map[string]client.Delivery // deliveries by the last poll
	fault error                      // error of the last poll, nil if it succeeded
}

// await waits until every delivery of the event has ended, and prints its attempts and its
// end. The error names the deliveries that were not delivered or have not ended in time.
func (s *session) await(ctx context.Context, event client.AcceptedEvent, posted client.Answer, patience time.Duration) error {
	if !s.json {
		if err := s.printStored(event, posted); err != nil {
			return err
		}
	}
	w := &waiter{session: s, event: event, shown: map[string]int{}, ended: map[string]client.Delivery{}, last: map[string]client.Delivery{}}
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
			return fmt.Errorf("interrupted; %s is stored, and its delivery continues", printable.Text(w.event.ID))
		}
		if err != nil && !isTemporary(err) {
			return err
		}
		w.fault = err
		if err == nil && len(w.ended) == len(w.event.Deliveries) {
			return w.result()
		}
		if pause = min(pause*3/2, lastPoll); news {
			pause = firstPoll
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done(): // the next poll returns the error
			next.Stop()
		case <-limit.C:
			next.Stop()
			return w.timeoutError(patience)
		}
	}
}

// poll checks every delivery once and prints what is new.
func (w *waiter) poll(ctx context.Context) (news bool, err error) {
	if len(w.event.Deliveries) == 0 {
		return false, nil
	}
	entries, _, err := w.collect(ctx, request{path: []string{"deliveries"}, query: url.Values{"event_id": {w.event.ID}}}, paging{Limit: maxEntries})
	if err != nil {
		return false, err
	}
	for _, raw := range slices.Backward(entries) { // oldest first
		d, err := decode[client.Delivery](client.Answer{Body: raw})
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
		if _, known := w.ended[d.ID]; !known && d.State.Ended() {
			news, w.ended[d.ID] = true, d
			w.printProgress(d.CompletedAt, fmt.Sprintf("%s  %s", d.ID, d.State))
		}
	}
	return news, nil
}

// attempts prints the attempts of a delivery that were not printed yet.
func (w *waiter) attempts(ctx context.Context, d client.Delivery) error {
	entries, _, err := w.collect(ctx, request{path: []string{"deliveries", d.ID, "attempts"}}, paging{Limit: max(d.Attempts-w.shown[d.ID], 1)})
	if err != nil {
		return err
	}
	for _, raw := range slices.Backward(entries) {
		a, err := decode[client.Attempt](client.Answer{Body: raw})
		if err != nil {
			return err
		}
		if a.Number > w.shown[d.ID] {
			w.shown[d.ID] = a.Number
			w.printProgress(a.StartedAt, fmt.Sprintf("%s  attempt %d  %s", d.ID, a.Number, summary(a)))
		}
	}
	return nil
}

// printProgress prints a line with the time of the event; with --json only the end is
// printed.
func (w *waiter) printProgress(at client.Time, text string) {
	if w.json {
		return
	}
	clock := "-"
	if !at.IsZero() {
		clock = at.UTC().Format(clockTime)
	}
	_ = w.line(clock + "  " + printable.Text(text)) // only progress: the result is the exit code
}

// result returns an error that names the deliveries that were not delivered.
func (w *waiter) result() error {
	var not []string
	for _, stub := range w.event.Deliveries {
		if d := w.ended[stub.ID]; d.State != client.DeliveryDelivered {
			not = append(not, fmt.Sprintf("%s is %s (%s)", d.ID, d.State, text(d.Reason)))
		}
	}
	if len(not) == 0 {
		return nil
	}
	return errors.New("not delivered: " + joinFew(not))
}

// timeoutError names the deliveries that are still open, and the last poll's error.
func (w *waiter) timeoutError(patience time.Duration) error {
	var open []string
	for _, stub := range w.event.Deliveries {
		if _, done := w.ended[stub.ID]; done {
			continue
		}
		text := stub.ID + " is " + string(stub.State)
		if d, seen := w.last[stub.ID]; seen {
			text = fmt.Sprintf("%s is %s", d.ID, d.State)
			if !d.NextAttemptAt.IsZero() {
				text += ", next attempt at " + optionalTime(d.NextAttemptAt)
			}
		}
		open = append(open, text)
	}
	err := fmt.Errorf("not finished after %s, delivery continues: %s", patience, joinFew(open))
	if w.fault != nil {
		return fmt.Errorf("%w; the last check failed: %w", err, w.fault)
	}
	return err
}

// joinFew joins the first texts and counts the rest.
func joinFew(texts []string) string {
	const few = 3
	shown := printable.Text(strings.Join(texts[:min(len(texts), few)], ", "))
	if more := len(texts) - few; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}
