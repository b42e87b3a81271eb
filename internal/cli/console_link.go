package cli

import (
	"context"
	"net/http"
)

// ConsoleLinkCommand makes a link that logs in to the console.
type ConsoleLinkCommand struct {
	connection `embed:""`
}

// Help returns the help that the flags do not contain.
func (*ConsoleLinkCommand) Help() string {
	return "Needs an operator key. The link logs in once, within the hour, with that key. Who has it may do what the key may, so keep it out of logs."
}

// Run makes the link and prints it.
func (c *ConsoleLinkCommand) Run(ctx context.Context, p Process) error {
	return with(p, c, func(s *session) error {
		return s.record(ctx, request{method: http.MethodPost, path: []string{"console-links"}, ofAll: true})
	})
}
