package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlanFollowsFromSeed(t *testing.T) {
	t.Parallel()
	first, second := newPlan(7), newPlan(7)
	require.Equal(t, first, second)
	require.NotEqual(t, newPlan(7).String(), newPlan(8).String())
}

// Every seed posts all kinds of events, and some seeds do everything.
func TestPlansDoEverything(t *testing.T) {
	t.Parallel()
	done := map[action]bool{}
	for seed := range uint64(20) {
		p := newPlan(seed)
		posted := 0
		for _, s := range p.steps {
			done[s.action] = true
			posted += map[bool]int{true: s.events}[s.action == post]
			require.Less(t, s.at, loadTime+1)
		}
		require.Equal(t, p.events, posted)
		require.True(t, slices.IsSortedFunc(p.steps, func(a, b step) int { return int(a.at - b.at) }))
		require.GreaterOrEqual(t, p.faultAt, faultAfter)
		require.Less(t, p.faultAt, faultUntil)
	}
	for a := post; a <= replayAll; a++ {
		require.True(t, done[a], a.String())
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, c := range classes() {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
		require.NotEmpty(t, c.shapes)
		for _, s := range c.shapes {
			_, err := shapeNamed(s)
			require.NoError(t, err)
		}
	}
	some, err := selected("none,postgres-kill*")
	require.NoError(t, err)
	require.Len(t, some, 3)
	_, err = selected("no-such-class")
	require.Error(t, err)
}

// The failpoints of the classes are those in the product.
func TestFailpointsExist(t *testing.T) {
	t.Parallel()
	hit := regexp.MustCompile(`failpoint\.Hit(?:WhenRead)?\("([a-z-]+)"`)
	var found []string
	patterns := []string{
		"activities", "workflows", "internal/egress", "internal/engine", "internal/intake", "internal/recovery", "internal/postgres/*",
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, match := range hit.FindAllSubmatch(text, -1) {
				found = append(found, string(match[1]))
			}
		}
	}
	named := []string{
		releaseAfter, holdBefore, holdAfter, sendMidBody, continueAsNew, rewrapBefore, rewrapAfter, retentionBefore, retentionAfter,
	}
	for _, p := range points() {
		named = append(named, p.name)
	}
	require.ElementsMatch(t, found, named)
}
