package mcpserver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
)

// maxGroups is how many groups of dead letters are shown.
const maxGroups = 15

// deadLetterFilters select dead letters.
type deadLetterFilters struct {
	filters

	Reason string `json:"reason,omitempty" jsonschema:"Only dead letters that were given up for this reason, such as max_attempts."`
}

func (f deadLetterFilters) filter(now time.Time) (client.DeadLetterFilter, error) {
	v, err := f.filters.filter(now)
	v.Reason = f.Reason
	return v, err
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
	Count  int               `json:"counted"`
	More   bool              `json:"more" jsonschema:"More match than were counted."`
	Groups []deadLetterGroup `json:"groups" jsonschema:"The 15 largest groups."`
}

// deadLetterGroup is the dead letters of one endpoint with one cause.
type deadLetterGroup struct {
	EndpointID string `json:"endpoint_id"`
	Reason     string `json:"reason" jsonschema:"Why they were given up."`
	Status     *int   `json:"status" jsonschema:"The HTTP status of their last answers; null if the last attempt got none."`
	Count      int    `json:"count"`
	Example    string `json:"example_id" jsonschema:"The newest of them."`
}

// why is the reason in words, with its code, which other tools take.
func (g deadLetterGroup) why() string { return explain.Label(g.Reason) + " (" + g.Reason + ")" }

// answered is the last answer of a group in words, after a comma; "" for none.
func (g deadLetterGroup) answered() string {
	if g.Status == nil || g.Reason == fmt.Sprintf("http_%03d", *g.Status) {
		return ""
	}
	return ", last answer " + explain.Label(fmt.Sprintf("http_%03d", *g.Status))
}

func (s *Server) addDeadLetterTools() {
	add(s, tool{
		name: "list_dead_letters", title: "List dead letters",
		description: "Counts the dead letters (deliveries that were given up) that match, by endpoint and cause, and lists the newest.",
	}, nil, listDeadLetters)
}

func listDeadLetters(ctx context.Context, c *call, in listDeadLettersInput) (string, deadLetterList, error) {
	f, err := in.filter(time.Now())
	if err != nil {
		return "", deadLetterList{}, err
	}
	var counted *deadLetterCount
	head := ""
	if in.Cursor == "" {
		count, err := countDeadLetters(ctx, c, f)
		if err != nil {
			return "", deadLetterList{}, err
		}
		counted, head = &count, count.text()
	}
	return fit(in.entries(), func(n int) (string, deadLetterList, error) {
		text, page, err := pageOfDeliveries(ctx, c.of.DeadLetters.List(f), in.Cursor, n)
		return head + text, deadLetterList{Counted: counted, DeadLetters: page.Deliveries, NextCursor: page.NextCursor}, err
	})
}

// countDeadLetters counts the dead letters that match, up to the API's bound.
func countDeadLetters(ctx context.Context, c *call, f client.DeadLetterFilter) (deadLetterCount, error) {
	read, err := c.of.DeadLetters.Groups(ctx, f)
	count := deadLetterCount{Count: read.Counted, More: read.More, Groups: []deadLetterGroup{}}
	for _, g := range read.Groups[:min(len(read.Groups), maxGroups)] {
		count.Groups = append(count.Groups, deadLetterGroup{
			EndpointID: g.EndpointID, Reason: clip(g.Reason, maxWord), Status: g.Status, Count: g.Count, Example: g.ExampleID,
		})
	}
	return count, err
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
		lines = append(lines, fmt.Sprintf("%d to %s, given up: %s%s, for example %s", g.Count, g.EndpointID, g.why(), g.answered(), g.Example))
		shown += g.Count
	}
	if rest := c.Count - shown; rest > 0 {
		lines = append(lines, fmt.Sprintf("%d in smaller groups", rest))
	}
	return strings.Join(append(lines, "The newest:"), "\n") + "\n"
}
