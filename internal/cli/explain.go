package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// command is the complete command line that does it, for a shell; "" for an act that this version does not know.
func (s *session) command(a client.Action) string {
	about := explain.Action{Act: explain.Act(a.Act), TenantID: s.tenant, Body: a.Body}
	if a.ID != nil {
		about.ID = *a.ID
	}
	words := about.Command()
	if words == nil {
		return ""
	}
	return commandLine(append(words, s.flags...))
}

// commandLine quotes words for a shell where they need it.
func commandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if word == "" || strings.ContainsFunc(word, needsQuotes) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func needsQuotes(r rune) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	return !strings.ContainsRune(plain, r)
}

// explanationRows returns the table; rows of optional values are left out when there is none. An action is named by its act, and
// command makes its complete command line.
func explanationRows(e *client.Explanation, command func(client.Action) string) [][2]string {
	if e == nil {
		return nil
	}
	var rows [][2]string
	add := func(name string, value *string) {
		if value != nil {
			rows = append(rows, [2]string{name, *value})
		}
	}
	add("cause", e.Cause)
	add("next", e.Next)
	add("remedy", e.Remedy)
	for _, a := range e.Actions {
		if line := command(a); line != "" {
			rows = append(rows, [2]string{"to " + strings.ReplaceAll(a.Act, "_", " "), line})
		}
	}
	add("operator", e.Operator)
	add("workflow", e.Workflow)
	if !e.Until.IsZero() {
		rows = append(rows, [2]string{"until", formatTime(e.Until.Time)})
	}
	return append(rows, [2]string{"code", e.Code})
}

// explained is an object of the API that explains itself.
type explained struct {
	Summary     string                `json:"summary"`
	Explanation *client.Explanation   `json:"explanation"`
	Deliveries  []client.DeliveryStub `json:"deliveries"` // of an event
}

// ExplainCommand explains a delivery, an event or an endpoint.
type ExplainCommand struct {
	remote `embed:""`

	ID string `arg:"" help:"The id of a delivery (dlv_...), an event (evt_...) or an endpoint (ep_...)." placeholder:"ID"`
}

// path returns where the API explains the object. The prefix of an id says what it is.
func (c *ExplainCommand) path() ([]string, error) {
	kind, err := webhook.KindOf(c.ID)
	var path []string
	switch kind {
	case "delivery":
		path = []string{"deliveries", c.ID}
	case "event":
		path = []string{"events", c.ID}
	case "endpoint":
		path = []string{"endpoints", c.ID, "health"}
	default:
		return nil, usagef("explain: %q is not the id of a delivery (dlv_…), an event (evt_…) or an endpoint (ep_…)", c.ID)
	}
	if err != nil {
		return nil, usagef("explain: %q %w", c.ID, err)
	}
	return path, nil
}

// Run prints the explanation.
func (c *ExplainCommand) Run(ctx context.Context, p Process) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	return readable(ctx, p, c, request{method: http.MethodGet, path: path}, func(s *session, _ []byte, about explained) error {
		if about.Summary != "" {
			return s.explain(about, nil)
		}
		for _, d := range about.Deliveries {
			if err := s.line(printable.Text(d.ID + " to " + d.EndpointID + ": " + d.Summary)); err != nil {
				return err
			}
		}
		if len(about.Deliveries) == 0 {
			return s.line("The event's deliveries are past their retention.")
		}
		return nil
	})
}

// explain prints a summary, then the explanation and other rows as a table.
func (s *session) explain(about explained, others [][2]string) error {
	if err := s.line(printable.Text(about.Summary) + "\n"); err != nil {
		return err
	}
	table := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range append(explanationRows(about.Explanation, s.command), others...) {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", printable.Text(row[0]), printable.Text(row[1]))
	}
	return table.Flush()
}
