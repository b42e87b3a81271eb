package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// FilterQuery collects the conditions of a list and their arguments.
type FilterQuery struct {
	Args []any
}

// Arg adds an argument and returns its place holder.
func (q *FilterQuery) Arg(v any) string {
	q.Args = append(q.Args, v)
	return fmt.Sprintf("$%d", len(q.Args))
}

// Window bounds a list by time and by the last id of the previous page.
func (q *FilterQuery) Window(b *strings.Builder, id, created string, since, until time.Time, p webhook.Page) {
	if !since.IsZero() {
		b.WriteString(" and " + id + " >= " + q.Arg([16]byte(IDsFrom(since))) + " and " + created + " >= " + q.Arg(since))
	}
	if !until.IsZero() {
		b.WriteString(" and " + id + " < " + q.Arg([16]byte(IDsFrom(until.Add(time.Millisecond)))) + " and " + created + " < " + q.Arg(until))
	}
	if p.After != [16]byte{} {
		b.WriteString(" and " + id + " < " + q.Arg(p.After))
	}
}

// PageCondition keeps the rows after the previous page; parameter 2 is the last id of that page.
const PageCondition = `($2::uuid = '00000000-0000-0000-0000-000000000000' or id < $2)`
