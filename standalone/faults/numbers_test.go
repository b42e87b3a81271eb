package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// numbered gives the good story's delivery to flaky, which is to be numbered, a number, and its requests their headers.
func numbered(sequence int64, header string) *story {
	s := goodStory()
	s.l.numbers = true
	e := s.l.events[1]
	e.OrderingKey = "a"
	e.Deliveries[0].Line, e.Deliveries[0].Sequence = 7, sequence
	s.l.events[1] = e
	for i := range s.l.arrivals {
		if a := &s.l.arrivals[i]; a.endpoint == flaky && header != "" {
			a.line, a.sequence = "7", header
		}
	}
	return s
}

func TestCheckOfNumbers(t *testing.T) {
	t.Parallel()
	require.False(t, isNumbered(steady))
	require.True(t, isNumbered(flaky))
	for name, test := range map[string]struct {
		s    *story
		want string
	}{
		"good":             {numbered(1, "1"), ""},
		"a gap":            {numbered(2, "2"), "number 1 of key \"a\""},
		"no number":        {numbered(0, ""), "it should have one: true"},
		"another number":   {numbered(1, "2"), "arrived with number \"2\""},
		"no header":        {numbered(1, ""), "arrived with number \"\""},
		"none is expected": {func() *story { s := numbered(1, "1"); s.l.numbers = false; return s }(), "it should have one: false"},
		"given twice": {func() *story {
			s := numbered(1, "1")
			e := s.l.events[1]
			again := e.Deliveries[0]
			again.ID = "other"
			e.Deliveries = append(e.Deliveries, again)
			s.l.events[1], s.l.promised["other"] = e, s.l.promised[e.Deliveries[0].ID]
			return s
		}(), "both have number 1"},
	} {
		v := check(test.s.l, test.s.r, test.s.w, maxInFlight)
		if test.want == "" {
			require.Empty(t, v.unexpected, name)
		} else {
			require.Contains(t, v.unexpected[0], test.want, name)
		}
	}
}
