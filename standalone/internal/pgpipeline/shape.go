package pgpipeline

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// kind is what sort of statement one is.
type kind int

const (
	other  kind = iota // anything
	read               // a SELECT that calls nothing
	lock               // a SELECT … FOR UPDATE of rows of one table
	insert             // an INSERT that stores all of its VALUES or fails
	update             // an UPDATE of rows of one table
)

// shape is what a statement's text says about its answer.
type shape struct {
	kind kind
	rows int64 // of insert
	selection
}

// selection says which rows of a table a statement is about: those where all columns equal an argument.
type selection struct {
	table string
	where map[string]int // column to the argument's place, from 0
}

// same reports whether two statements are about the same rows.
func (s selection) same(args []any, than selection, thanArgs []any) bool {
	if s.table != than.table || len(s.where) != len(than.where) {
		return false
	}
	for column, i := range s.where {
		j, there := than.where[column]
		if !there || i >= len(args) || j >= len(thanArgs) || !reflect.DeepEqual(args[i], thanArgs[j]) {
			return false
		}
	}
	return true
}

const (
	list       = `[\w.*, ]+`
	conditions = `((?:\w+ ?= ?\$\d+)(?: AND \w+ ?= ?\$\d+)*)`
	tuple      = `\( ?\$\d+(?: ?, ?\$\d+)* ?\)`
	assignment = `\w+ ?= ?(?:\$\d+|excluded\.\w+)`
)

var (
	insertShape = regexp.MustCompile(`^INSERT INTO (\w+) ?\(` + list + `\) ?VALUES ?(` + tuple + `(?: ?, ?` + tuple + `)*)` +
		`(?: ON CONFLICT ?\(` + list + `\) DO UPDATE SET ` + assignment + `(?: ?, ?` + assignment + `)*)?$`)
	updateShape    = regexp.MustCompile(`^UPDATE (\w+) SET (` + assignment + `(?: ?, ?` + assignment + `)*) WHERE ` + conditions + `$`)
	lockShape      = regexp.MustCompile(`^SELECT ` + list + ` FROM (\w+) WHERE ` + conditions + ` FOR UPDATE$`)
	readShape      = regexp.MustCompile(`^SELECT [^()']*$`)
	conditionShape = regexp.MustCompile(`(\w+) ?= ?\$(\d+)`)
)

// parse finds the shape of a statement. What it does not know for certain is other.
func parse(query string) shape {
	query = strings.Join(strings.Fields(query), " ")
	if m := insertShape.FindStringSubmatch(query); m != nil {
		return shape{kind: insert, rows: int64(strings.Count(m[2], "(")), selection: selection{table: m[1]}}
	}
	if m := updateShape.FindStringSubmatch(query); m != nil {
		if s, ok := selected(m[1], m[3]); ok && !s.changedBy(m[2]) {
			return shape{kind: update, selection: s}
		}
		return shape{}
	}
	if m := lockShape.FindStringSubmatch(query); m != nil {
		if s, ok := selected(m[1], m[2]); ok {
			return shape{kind: lock, selection: s}
		}
	}
	if readShape.MatchString(query) && !strings.Contains(strings.ToUpper(query), " INTO ") {
		return shape{kind: read}
	}
	return shape{}
}

func selected(table, conditions string) (selection, bool) {
	s := selection{table: table, where: map[string]int{}}
	for _, m := range conditionShape.FindAllStringSubmatch(conditions, -1) {
		place, err := strconv.Atoi(m[2])
		if _, twice := s.where[m[1]]; twice || err != nil || place == 0 {
			return selection{}, false
		}
		s.where[m[1]] = place - 1
	}
	return s, true
}

// changedBy reports whether assignments change a column by which the rows are found.
func (s selection) changedBy(assignments string) bool {
	for one := range strings.SplitSeq(assignments, ",") {
		column, _, _ := strings.Cut(one, "=")
		if _, found := s.where[strings.TrimSpace(column)]; found {
			return true
		}
	}
	return false
}

// mostShapes bounds what is kept. A program has few statements; those that are put together anew for each request must
// not fill the memory.
const mostShapes = 1000

// shapes are those of a pool's statements. It is safe for concurrent use.
type shapes struct {
	mu     sync.RWMutex
	byText map[string]shape
}

// of is parse, once for each text.
func (all *shapes) of(query string) shape {
	all.mu.RLock()
	s, known := all.byText[query]
	all.mu.RUnlock()
	if known {
		return s
	}
	s = parse(query)
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.byText) < mostShapes {
		all.byText[query] = s
	}
	return s
}
