package cli

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// EndpointsCommand manages endpoints.
type EndpointsCommand struct {
	List         EndpointsListCommand         `cmd:"" help:"List endpoints."`
	Get          EndpointsGetCommand          `cmd:"" help:"Show an endpoint."`
	Create       EndpointsCreateCommand       `cmd:"" help:"Create an endpoint and print it, with its secret."`
	Update       EndpointsUpdateCommand       `cmd:"" help:"Change an endpoint."`
	Delete       EndpointsDeleteCommand       `cmd:"" help:"Delete an endpoint and cancel its open deliveries."`
	Secret       EndpointsSecretCommand       `cmd:"" help:"Print an endpoint's secret."`
	RotateSecret EndpointsRotateSecretCommand `cmd:"" help:"Give an endpoint a new secret; the old one stays in use for a grace period."`
	Attempts     EndpointsAttemptsCommand     `cmd:"" help:"List the attempts to an endpoint, those of the newest delivery first."`
	Health       EndpointsHealthCommand       `cmd:"" help:"Show an endpoint's health, and why deliveries to it wait."`
	Test         EndpointsTestCommand         `cmd:"" help:"Send a test request to an endpoint now, and show the result."`
	Pause        EndpointsPauseCommand        `cmd:"" help:"Pause an endpoint: its deliveries are held."`
	Resume       EndpointsResumeCommand       `cmd:"" help:"Resume an endpoint: held deliveries are released at a rate."`
	Release      EndpointsReleaseCommand      `cmd:"" help:"Show the release of an endpoint's held deliveries, stop it, or change its rate."`
	CloseCircuit EndpointsCloseCircuitCommand `cmd:"" help:"Close an open circuit: try the endpoint now."`
}

// condition is how the endpoint is, and why.
func condition(e client.Endpoint) string {
	if e.Condition == nil {
		return "-"
	}
	return withReason(strings.ReplaceAll(e.Condition.Code, "_", " "), e.Condition.Cause)
}

func lastSuccess(e client.Endpoint) string {
	if e.Condition == nil {
		return "-"
	}
	return optionalTime(e.Condition.LastSuccess)
}

// waiting is how many deliveries are open.
func waiting(e client.Endpoint) string {
	switch {
	case e.Condition == nil:
		return "-"
	case e.Condition.More:
		return "more than " + strconv.Itoa(e.Condition.Waiting)
	}
	return strconv.Itoa(e.Condition.Waiting)
}

// EndpointsListCommand lists endpoints.
type EndpointsListCommand struct {
	remote `embed:""`
	paging `embed:""`
}

// Run lists them.
func (c *EndpointsListCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "endpoints", request{path: []string{"endpoints"}}, c.paging, []column[client.Endpoint]{
		{"ID", func(e client.Endpoint) string { return e.ID }},
		{"STATE", func(e client.Endpoint) string { return string(e.State) }},
		{"CONDITION", condition},
		{"WAITING", waiting},
		{"LAST SUCCESS", lastSuccess},
		{"URL", func(e client.Endpoint) string { return webhook.PlainURL(e.URL) }},
		{"EVENT TYPES", func(e client.Endpoint) string { return strings.Join(e.EventTypes, ", ") }},
	})
}

// oneEndpoint holds the arguments of a command for one endpoint.
type oneEndpoint struct {
	remote `embed:""`

	ID webhook.EndpointID `arg:"" help:"The endpoint's id, ep_..."`
}

// newRequest returns a request about the endpoint. verb is the rest of its path, "" for
// none.
func (c *oneEndpoint) newRequest(method, verb string, body []byte) request {
	path := []string{"endpoints", c.ID.String()}
	if verb != "" {
		path = append(path, verb)
	}
	return request{method: method, path: path, body: body}
}

// EndpointsGetCommand shows an endpoint.
type EndpointsGetCommand struct {
	oneEndpoint `embed:""`
}

// Run shows it.
func (c *EndpointsGetCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, c.newRequest(http.MethodGet, "", nil))
}

// EndpointsCreateCommand creates an endpoint.
type EndpointsCreateCommand struct {
	remote         `embed:""`
	endpointFields `embed:""`

	Address string `arg:"" help:"The URL to send to; https, unless Everpost was started with --dev or EVERPOST_ALLOW_HTTP." name:"endpoint-url"`
}

// Run creates it.
func (c *EndpointsCreateCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p, &c.Address)
	if err != nil {
		return err
	}
	return c.once(ctx, p, request{method: http.MethodPost, path: []string{"endpoints"}, body: body})
}

// EndpointsUpdateCommand updates an endpoint.
type EndpointsUpdateCommand struct {
	oneEndpoint    `embed:""`
	endpointFields `embed:""`

	Address *string `help:"The URL to send to." name:"endpoint-url" placeholder:"URL"`
}

// Run updates it.
func (c *EndpointsUpdateCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p, c.Address)
	if err != nil {
		return err
	}
	if string(body) == "{}" {
		return usage("endpoints update: say what is to change; 'everpost endpoints update --help' lists it")
	}
	return c.once(ctx, p, c.newRequest(http.MethodPatch, "", body))
}

// EndpointsDeleteCommand deletes an endpoint.
type EndpointsDeleteCommand struct {
	oneEndpoint `embed:""`
}

// Run deletes it.
func (c *EndpointsDeleteCommand) Run(ctx context.Context, p Process) error {
	return removed(ctx, p, c, c.newRequest(http.MethodDelete, "", nil), c.ID.String())
}

// EndpointsSecretCommand prints a secret.
type EndpointsSecretCommand struct {
	oneEndpoint `embed:""`
}

// Run prints the secret and nothing else, for scripts.
func (c *EndpointsSecretCommand) Run(ctx context.Context, p Process) error {
	return readable(ctx, p, c, c.newRequest(http.MethodGet, "secret", nil), func(s *session, _ []byte, shown client.Secret) error {
		return s.line(printable.Text(shown.Secret))
	})
}

// EndpointsPauseCommand pauses an endpoint.
type EndpointsPauseCommand struct {
	oneEndpoint `embed:""`

	Reason string `help:"Why, for those who see that it is paused." placeholder:"TEXT"`
}

// Run pauses it.
func (c *EndpointsPauseCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, c.newRequest(http.MethodPost, "pause", object(withReasonOf(c.Reason))))
}

// EndpointsResumeCommand resumes an endpoint.
type EndpointsResumeCommand struct {
	oneEndpoint `embed:""`

	Reason string  `help:"Why, for those who see that it was resumed." placeholder:"TEXT"`
	Rate   float64 `help:"Held deliveries released per minute; without it Everpost sets the pace, from the rate before." name:"rate-per-minute" placeholder:"N"`
}

// withReasonOf is a body with a reason, if there is one.
func withReasonOf(reason string) map[string]any {
	if reason == "" {
		return map[string]any{}
	}
	return map[string]any{"reason": reason}
}

// Run resumes it.
func (c *EndpointsResumeCommand) Run(ctx context.Context, p Process) error {
	body := withReasonOf(c.Reason)
	if c.Rate != 0 {
		body["rate_per_minute"] = c.Rate
	}
	return c.once(ctx, p, c.newRequest(http.MethodPost, "resume", object(body)))
}

// EndpointsReleaseCommand shows or changes the release of an endpoint's held deliveries.
type EndpointsReleaseCommand struct {
	oneEndpoint `embed:""`

	Stop    bool    `help:"Keep what is held; deliveries of newer events are sent."                        xor:"state"`
	GoOn    bool    `help:"Let the release go on."                                                          xor:"state"`
	Rate    float64 `help:"Deliveries released per minute."                        name:"rate-per-minute"  placeholder:"N" xor:"rate"`
	OwnPace bool    `help:"Let Everpost set the pace."                                                      xor:"rate"`
}

// Run changes the release if a flag says so, and shows it.
func (c *EndpointsReleaseCommand) Run(ctx context.Context, p Process) error {
	change := map[string]any{}
	switch {
	case c.Stop:
		change["state"] = client.ReleaseStopped
	case c.GoOn:
		change["state"] = client.ReleaseRunning
	}
	switch {
	case c.Rate != 0:
		change["rate_per_minute"] = c.Rate
	case c.OwnPace:
		change["rate_per_minute"] = nil
	}
	if len(change) == 0 {
		return c.once(ctx, p, c.newRequest(http.MethodGet, "release", nil))
	}
	return c.once(ctx, p, c.newRequest(http.MethodPatch, "release", marshal(change)))
}

// EndpointsCloseCircuitCommand makes an open circuit half open.
type EndpointsCloseCircuitCommand struct {
	oneEndpoint `embed:""`
}

// Run closes it.
func (c *EndpointsCloseCircuitCommand) Run(ctx context.Context, p Process) error {
	return c.once(ctx, p, c.newRequest(http.MethodPost, "close-circuit", nil))
}
