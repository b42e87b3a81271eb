package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxCounted is how many dead letters are counted; that takes about a second.
	maxCounted = 5_000
	countPage  = 250 // the API's largest page

	maxGroups = 15
)

// deadLetterFilters select dead letters.
type deadLetterFilters struct {
	filters

	Reason string `json:"reason,omitempty" jsonschema:"Only dead letters that were given up for this reason, such as max_attempts."`
	Status int    `json:"status,omitempty" jsonschema:"Only dead letters whose last answer had this HTTP status."`
}

func (f deadLetterFilters) values(now time.Time) (url.Values, error) {
	v, err := f.filters.values(now)
	if err != nil {
		return nil, err
	}
	if f.Reason != "" {
		v.Set("reason", f.Reason)
	}
	if f.Status != 0 {
		v.Set("status", strconv.Itoa(f.Status))
	}
	return v, nil
}

// listDeadLettersInput is the arguments of list_dead_letters.
type listDeadLettersInput struct {
	scope
	deadLetterFilters
	paging
}

// deadLetterList is a page of dead letters, and on the first page the counts.
type deadLetterList struct {
	Counted     *deadLetterCount `json:"counted,omitempty" jsonschema:"All that match, grouped; on the first page only."`
	DeadLetters []delivery       `json:"dead_letters"`
	NextCursor  string           `json:"next_cursor,omitempty" jsonschema:"Give it as cursor to get the next page."`
}

// deadLetterCount is how many dead letters match.
type deadLetterCount struct {
	Count  int               `json:"count"`
	More   bool              `json:"more" jsonschema:"More match than were counted."`
	Groups []deadLetterGroup `json:"groups" jsonschema:"The 15 largest groups."`
}

// deadLetterGroup is the dead letters of one endpoint with one cause.
type deadLetterGroup struct {
	deadLetterCause

	Count   int    `json:"count"`
	Example string `json:"example" jsonschema:"The newest of them."`
}

// deadLetterCause is what the dead letters of a group have in common.
type deadLetterCause struct {
	EndpointID  string `json:"endpoint_id"`
	Reason      string `json:"reason" jsonschema:"Why they were given up."`
	LastOutcome string `json:"last_outcome" jsonschema:"What their last attempts came to."`
}

func (s *Server) addDeadLetterTools() {
	addRead(s, tool{
		name: "list_dead_letters", title: "List dead letters",
		description: "Counts the dead letters (deliveries that were given up) that match, by endpoint and cause, and lists the newest.",
	}, listDeadLetters)
}

func listDeadLetters(ctx context.Context, c *call, in listDeadLettersInput) (string, deadLetterList, error) {
	query, err := in.values(time.Now())
	if err != nil {
		return "", deadLetterList{}, err
	}
	var counted *deadLetterCount
	head := ""
	if in.Cursor == "" {
		count, err := countDeadLetters(ctx, c, query)
		if err != nil {
			return "", deadLetterList{}, err
		}
		counted, head = &count, count.text()
	}
	return fit(in.entries(), func(n int) (string, deadLetterList, error) {
		text, page, err := pageOfDeliveries(ctx, c, query, in.Cursor, n, "dead-letters")
		return head + text, deadLetterList{Counted: counted, DeadLetters: page.Deliveries, NextCursor: page.NextCursor}, err
	})
}

// countDeadLetters counts the dead letters that match, up to maxCounted.
func countDeadLetters(ctx context.Context, c *call, query url.Values) (deadLetterCount, error) {
	groups := map[deadLetterCause]*deadLetterGroup{}
	total, cursor := 0, ""
	for {
		page, err := list[delivery](ctx, c, query, cursor, countPage, "dead-letters")
		if err != nil {
			return deadLetterCount{}, err
		}
		for _, d := range page.Data {
			cause := deadLetterCause{EndpointID: d.EndpointID, Reason: clip(value(d.Reason), maxWord), LastOutcome: d.last()}
			if groups[cause] == nil {
				groups[cause] = &deadLetterGroup{deadLetterCause: cause, Example: d.ID}
			}
			groups[cause].Count++
		}
		total, cursor = total+len(page.Data), page.NextCursor
		if cursor == "" || total >= maxCounted {
			break
		}
		if len(page.Data) == 0 {
			return deadLetterCount{}, errors.New("the API answered with an empty page that is not the last")
		}
	}
	out := deadLetterCount{Count: total, More: cursor != "", Groups: []deadLetterGroup{}}
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b deadLetterGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.EndpointID, b.EndpointID), cmp.Compare(a.Example, b.Example))
	})
	out.Groups = out.Groups[:min(len(out.Groups), maxGroups)]
	return out, nil
}

// number is the count in words.
func (c deadLetterCount) number() string {
	if c.More {
		return "more than " + strconv.Itoa(c.Count) + " dead letters"
	}
	return plural(c.Count, "dead letter", "dead letters")
}

// text is the counts in lines, of which each has a line end.
func (c deadLetterCount) text() string {
	if c.Count == 0 {
		return ""
	}
	lines, shown := []string{"In all " + c.number() + ":"}, 0
	for _, g := range c.Groups {
		lines = append(lines, fmt.Sprintf("%d to %s, given up for %s, last outcome %s, for example %s",
			g.Count, g.EndpointID, g.Reason, g.LastOutcome, g.Example))
		shown += g.Count
	}
	if rest := c.Count - shown; rest > 0 {
		lines = append(lines, fmt.Sprintf("%d in smaller groups", rest))
	}
	return strings.Join(append(lines, "The newest:"), "\n") + "\n"
}
