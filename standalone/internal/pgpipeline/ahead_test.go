package pgpipeline

import (
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func setupAhead() (a *ahead, later func(time.Duration)) {
	now := time.Now()
	a = newAhead(map[string][]string{"first": {"second", "third"}})
	a.now = func() time.Time { return now }
	return a, func(d time.Duration) { now = now.Add(d) }
}

func answerOf(v driver.Value) answer { return answer{values: [][]driver.Value{{v}}} }

func TestAheadGivesOutOnce(t *testing.T) {
	t.Parallel()
	a, _ := setupAhead()
	args := []any{int32(1), "x"}
	a.keep(1, []string{"second", "third"}, args, []answer{answerOf("2"), answerOf("3")})

	_, ok := a.take("first", args)
	require.False(t, ok)
	_, ok = a.take("second", []any{int32(1), "y"})
	require.False(t, ok, "other arguments")
	got, ok := a.take("third", args)
	require.True(t, ok)
	require.Equal(t, answerOf("3"), got)
	got, ok = a.take("second", args)
	require.True(t, ok)
	require.Equal(t, answerOf("2"), got)
	require.Empty(t, a.kept)
}

// TestAheadEndsWithAQuestionTwice: who asks for something again wants it newer, and so the rest too.
func TestAheadEndsWithAQuestionTwice(t *testing.T) {
	t.Parallel()
	a, _ := setupAhead()
	a.keep(2, []string{"second", "third"}, nil, []answer{answerOf("2"), answerOf("3")})
	_, ok := a.take("second", nil)
	require.True(t, ok)
	_, ok = a.take("second", nil)
	require.False(t, ok)
	_, ok = a.take("third", nil)
	require.False(t, ok)
}

func TestAheadReplaces(t *testing.T) {
	t.Parallel()
	a, _ := setupAhead()
	a.keep(3, []string{"second", "third"}, nil, []answer{answerOf("2"), answerOf("3")})
	a.keep(4, []string{"second"}, nil, []answer{answerOf("new")})
	got, ok := a.take("second", nil)
	require.True(t, ok)
	require.Equal(t, answerOf("new"), got)
	_, ok = a.take("third", nil)
	require.False(t, ok, "what was there before")
}

// TestAheadKeepsWhatIsNewer: of two that asked at the same time, the answers to the later question stay.
func TestAheadKeepsWhatIsNewer(t *testing.T) {
	t.Parallel()
	a, _ := setupAhead()
	a.keep(8, []string{"second"}, nil, []answer{answerOf("new")})
	a.keep(7, []string{"second"}, nil, []answer{answerOf("old")})
	got, ok := a.take("second", nil)
	require.True(t, ok)
	require.Equal(t, answerOf("new"), got)
}

func TestAheadExpires(t *testing.T) {
	t.Parallel()
	a, later := setupAhead()
	keep := func() { a.keep(5, []string{"second"}, nil, []answer{answerOf("2")}) }
	keep()
	later(freshness - 1)
	_, ok := a.take("second", nil)
	require.True(t, ok)
	keep()
	later(freshness)
	_, ok = a.take("second", nil)
	require.False(t, ok)
	require.Empty(t, a.kept)
}

func TestAheadIsBounded(t *testing.T) {
	t.Parallel()
	a, later := setupAhead()
	keep := func(i int, v string) { a.keep(6, []string{"second"}, []any{i}, []answer{answerOf(v)}) }
	for i := range mostAhead + 10 {
		keep(i, "old")
	}
	require.Len(t, a.kept, mostAhead)
	_, ok := a.take("second", []any{mostAhead})
	require.False(t, ok, "there was no room")

	keep(0, "new")
	got, ok := a.take("second", []any{0})
	require.True(t, ok)
	require.Equal(t, answerOf("new"), got, "what is full still forgets what is older")

	keep(0, "new")
	later(freshness + 1)
	keep(mostAhead, "newest")
	require.Len(t, a.kept, 1, "what has expired made room")
}

func TestAheadTellsArgumentsApart(t *testing.T) {
	t.Parallel()
	different := [][]any{
		nil, {nil}, {""}, {1}, {int32(1)}, {int64(1)}, {"1"}, {[]byte("1")}, {1, 2}, {12}, {"1", "2"}, {`1",string:"2`}, {"1,2"}, {true}, {"true"},
	}
	seen := map[string][]any{}
	for _, args := range different {
		k := key(args)
		require.NotContains(t, seen, k, "%#v and %#v", args, seen[k])
		seen[k] = args
	}
}
