package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was due during the fault counts from its end, what is due later from then on.
func TestLatestAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*story)
		want   time.Duration
	}{
		"in time":        {func(*story) {}, 95 * time.Millisecond}, // the retry, due 100 ms after the end of the attempt before
		"first one late": {func(s *story) { s.r.attempts[s.first()][0].started = at(1050) }, time.Second},
		"due after the end": {func(s *story) {
			s.change(s.first(), func(d *delivery) { d.due = at(900) })
			s.r.attempts[s.first()][0].started = at(1050)
		}, 150 * time.Millisecond},
		"before the end": {func(s *story) { s.w.end = at(200) }, 95 * time.Millisecond},
		"retry late":     {func(s *story) { s.r.attempts[s.second()][1].started = at(2205) }, 2 * time.Second},
		"retry by command": {func(s *story) {
			s.r.attempts[s.second()][1].started = at(2205)
			s.command(s.second(), retryNow, 100)
		}, 50 * time.Millisecond},
		"asked for a pause": {func(s *story) {
			s.l.arrivals[1].status, s.r.attempts[s.second()][0].status = 503, 503
			s.r.attempts[s.second()][1].started = at(1205)
		}, 100 * time.Millisecond},
		"all gone before": {func(s *story) { s.w.end = at(500) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := goodStory()
			for _, id := range []string{s.first(), s.second()} {
				s.change(id, func(d *delivery) { d.due = at(10) })
			}
			test.change(s)
			require.Equal(t, test.want, latestAttempt(s.l, s.r, s.w.end).late)
		})
	}
}
