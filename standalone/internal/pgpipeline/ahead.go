package pgpipeline

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// freshness is for how long what was read ahead is given out. The queries that follow one come within
	// milliseconds; what is left was asked for by somebody who gave up.
	freshness = time.Second

	// mostAhead bounds for how many queries something is kept.
	mostAhead = 1000
)

// ahead is what connections of a pool have read ahead for one another. It is safe for concurrent use.
type ahead struct {
	follows map[string][]string // as in Options
	follow  map[string]bool     // all queries that follow one
	now     func() time.Time

	asked atomic.Int64 // queries that read ahead, to tell older from newer

	mu    sync.Mutex
	swept time.Time        // when what is too old was dropped last
	kept  map[string]*kept // by arguments
}

// kept are the answers to what follows one query.
type kept struct {
	number  int64 // of the query that they follow
	until   time.Time
	answers map[string]answer // by query
}

func newAhead(follows map[string][]string) *ahead {
	a := &ahead{follows: follows, follow: map[string]bool{}, now: time.Now, kept: map[string]*kept{}}
	for _, queries := range follows {
		for _, query := range queries {
			a.follow[query] = true
		}
	}
	return a
}

// keep replaces what is there for the same arguments, unless that is of a query that was sent later.
func (a *ahead) keep(number int64, queries []string, args []any, answers []answer) {
	k := &kept{number: number, until: a.now().Add(freshness), answers: make(map[string]answer, len(queries))}
	for i, query := range queries {
		k.answers[query] = answers[i]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := key(args)
	if newer := a.kept[key]; newer != nil && newer.number > number {
		return
	}
	delete(a.kept, key) // also where there is no room for what is newer
	if now := a.now(); now.Sub(a.swept) >= freshness {
		maps.DeleteFunc(a.kept, func(_ string, k *kept) bool { return now.After(k.until) })
		a.swept = now
	}
	if len(a.kept) < mostAhead {
		a.kept[key] = k
	}
}

// take gives an answer out, once.
func (a *ahead) take(query string, args []any) (answer, bool) {
	if !a.follow[query] {
		return answer{}, false
	}
	key := key(args)
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.kept[key]
	if !ok {
		return answer{}, false
	}
	got, ok := k.answers[query]
	delete(k.answers, query)
	if ok = ok && a.now().Before(k.until); !ok || len(k.answers) == 0 {
		delete(a.kept, key)
	}
	return got, ok
}

// key tells arguments apart, their types included.
func key(args []any) string {
	var b strings.Builder
	for _, arg := range args {
		fmt.Fprintf(&b, "%T:%q,", arg, fmt.Sprint(arg))
	}
	return b.String()
}
