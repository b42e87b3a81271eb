package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		check   func(o options, results string) bool
		refused string
	}{
		{args: nil, check: func(o options, results string) bool {
			return o.runs == 3 && !o.quick && o.size.events == 5000 && o.only == nil && results == "bench/results" && o.binary == "bin/everpost"
		}},
		{args: []string{"-quick"}, check: func(o options, results string) bool {
			return o.runs == 1 && o.quick && o.size.events == 1000 && results == ""
		}},
		{args: []string{"-quick", "-runs", "3", "-results", "here"}, check: func(o options, results string) bool {
			return o.runs == 3 && results == "here"
		}},
		{args: []string{"-runs=2", "-only", "fan-out,start", "-results="}, check: func(o options, results string) bool {
			return o.runs == 2 && len(o.only) == 2 && results == ""
		}},
		{args: []string{"-set", "A=b=c", "-set", "D="}, check: func(o options, _ string) bool { return o.settings["A"] == "b=c" && len(o.settings) == 2 }},
		{args: []string{"-set", "A"}, refused: "usage"},
		{args: []string{"-runs", "0"}, refused: "-runs: is 0, must be at least 1"},
		{args: []string{"-runs", "x"}, refused: "usage"},
		{args: []string{"throughput"}, refused: `"throughput" is no command; the only other one is compare`},
	} {
		o, results, err := parse(c.args, io.Discard)
		if c.refused != "" {
			require.EqualError(t, err, c.refused, c.args)
			continue
		}
		require.NoError(t, err, c.args)
		require.True(t, c.check(o, results), "%q: %+v", c.args, o)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	_, err := choose([]string{"batch", "bulk"})
	require.EqualError(t, err, `-only: there is no "bulk"; `+
		`there are ceiling, throughput, fan-out, batch, latency, retries, replay, start, waiting, growth, pages`)
	for _, c := range []struct{ names, want []string }{
		{nil, scenarioNames()},
		{[]string{"start", "batch"}, []string{"ceiling", "batch", "start"}},
		{[]string{"ceiling"}, []string{"ceiling"}},
	} {
		chosen, err := choose(c.names)
		require.NoError(t, err)
		var names []string
		for _, s := range chosen {
			names = append(names, s.name)
		}
		require.Equal(t, c.want, names)
	}
}
