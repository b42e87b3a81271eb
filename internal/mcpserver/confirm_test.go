package mcpserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A state is valid for the call that it was made for, for a while, and unchanged.
func TestSealer(t *testing.T) {
	t.Parallel()
	s, now := newSealer(), time.Unix(1_800_000_000, 0)
	state := s.close("pause ep_1", 12, now)
	count, valid := s.open(state, "pause ep_1", now.Add(confirmTimeout))
	require.True(t, valid)
	require.Equal(t, 12, count)
	for name, c := range map[string]struct {
		state, subject string
		after          time.Duration
		by             sealer
	}{
		"another call":      {state, "pause ep_2", 0, s},
		"too late":          {state, "pause ep_1", confirmTimeout + time.Second, s},
		"another count":     {"1800000600.13" + state[len("1800000600.12"):], "pause ep_1", 0, s},
		"another time":      {"1900000000.12" + state[len("1800000600.12"):], "pause ep_1", 0, s},
		"none":              {"", "pause ep_1", 0, s},
		"a part":            {"1800000600.12", "pause ep_1", 0, s},
		"of another server": {state, "pause ep_1", 0, newSealer()},
	} {
		_, valid := c.by.open(c.state, c.subject, now.Add(c.after))
		require.False(t, valid, name)
	}
}

// A number that was confirmed stands for about as many.
func TestIntentMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		intent intent
		expect string
		want   bool
	}{
		{intent{expect: "example.com"}, "example.com", true},
		{intent{expect: "example.com"}, "", false},
		{intent{expect: "12", count: 12}, "12", true},
		{intent{expect: "12", count: 12}, "22", true},
		{intent{expect: "12", count: 12}, "1", false},
		{intent{expect: "12", count: 12}, "23", false},
		{intent{expect: "12", count: 12}, "", false},
		{intent{expect: "12", count: 12}, "twelve", false},
		{intent{expect: "1100", count: 1100}, "1000", true},
		{intent{expect: "1101", count: 1101}, "1000", false},
		{intent{expect: "5", count: 5}, "1000000", false},
	} {
		require.Equal(t, c.want, c.intent.matches(c.expect), "%v %q", c.intent, c.expect)
	}
}
