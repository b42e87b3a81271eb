package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/everpost/everpost/internal/webhook"
)

// EndpointChecks check endpoints with internal faults.
type EndpointChecks struct {
	*reporter

	targets Targets
}

// CheckEndpoint finds out whether everything that a request to an endpoint needs is there. Its error is in
// words for people. It is nil if the endpoint is gone: its deliveries find that out.
func (c *EndpointChecks) CheckEndpoint(ctx context.Context, id webhook.EndpointID) error {
	target, err := c.targets.Target(ctx, id)
	switch {
	case webhook.CodeOf(err) == webhook.CodeNotFound:
		return nil
	case err != nil:
		_, text := describeFault(c.internalFault(ctx, fmt.Sprintf("check endpoint %s", id), err))
		return errors.New(text)
	}
	_, _, err = signed(message{}, target, nil, c.now(), "")
	return err
}
