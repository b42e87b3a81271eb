// Package query is the language of the console's search box. A search is a list of terms: ids, words, and
// filters such as "state:retrying". The package is pure: the time is an argument.
package query

import (
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// MaxLength is the number of bytes of a search that Parse reads.
const MaxLength = 512

// Query is what a search asks for. A zero field does not narrow it.
type Query struct {
	// ID is an id that names one thing by itself. The other fields are zero then, except Tenant.
	ID string
	// Kind is what the ID names, as in webhook.KindOf; "" without an ID.
	Kind string

	Tenant     string
	Type       string // a filter of event types, as in an endpoint's event_types
	States     []webhook.State
	Reason     string // why a delivery became a dead letter
	Status     int    // that the receiver of a dead letter answered last
	EndpointID webhook.EndpointID
	EventID    webhook.EventID
	ExternalID string
	URL        string    // a part of an endpoint's URL
	Since      time.Time // Since <= created < Until
	Until      time.Time

	// Text is a word without a name: an external id, a part of a URL, or an event type.
	Text string
}

// Problem is a term that cannot be used. From and To are the bytes of the search that it is about.
type Problem struct {
	From, To int
	Message  string
}

// Empty reports whether the query asks for nothing.
func (q *Query) Empty() bool {
	bare := *q
	bare.Tenant = ""
	return bare.ID == "" && bare.Type == "" && len(bare.States) == 0 && bare.Reason == "" && bare.Status == 0 && bare.EndpointID.IsZero() &&
		bare.EventID.IsZero() && bare.ExternalID == "" && bare.URL == "" && bare.Since.IsZero() && bare.Until.IsZero() && bare.Text == ""
}

// DeadLettersOnly reports whether only dead letters can match: reasons and statuses are filters of dead letters.
func (q *Query) DeadLettersOnly() bool { return q.Reason != "" || q.Status != 0 }

// Parse reads a search. It returns what it understood and, for the rest, problems in the order of the text. Times
// such as "2h" are counted back from now.
func Parse(text string, now time.Time) (Query, []Problem) {
	p := parser{now: now}
	if len(text) > MaxLength {
		p.problem(term{from: MaxLength, to: len(text)}, "the search is too long")
		text = strings.ToValidUTF8(text[:MaxLength], "")
	}
	for _, t := range split(text) {
		p.term(t)
	}
	p.contradictions()
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return a.From - b.From })
	return p.query, p.problems
}

// Cut returns the part of the text that the problem is about, for its message. The text may differ from the
// one that was parsed.
func (p Problem) Cut(text string) string {
	from := min(max(p.From, 0), len(text))
	return strings.ToValidUTF8(text[from:min(max(p.To, from), len(text))], "")
}
