package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// NotificationsCommand shows and sets whom Everpost tells of changes of endpoints.
type NotificationsCommand struct {
	Show NotificationsShowCommand `aliases:"get" cmd:"" help:"Show the channels, and whether they work."`
	Set  NotificationsSetCommand  `cmd:"" help:"Replace all channels."`
}

// channelOwner are the flags that say whose channels are meant.
type channelOwner struct {
	remote `embed:""`

	Installation bool `help:"The installation's own channels, which are told of all tenants; instead of --tenant. Needs an operator's key."`
}

// open is remote.open, or connection.open for the installation.
func (c *channelOwner) open(p Process) (*session, error) {
	if c.Installation {
		return c.connection.open(p)
	}
	return c.remote.open(p)
}

func (c *channelOwner) request(method string, body []byte) request {
	return request{method: method, path: []string{"notifications"}, ofAll: c.Installation, body: body}
}

// print makes a request and prints the channels that it returns.
func (c *channelOwner) print(ctx context.Context, s *session, r request) error {
	a, err := s.do(ctx, r)
	if err != nil {
		return err
	}
	if s.json {
		return s.show(a)
	}
	shown, err := decode[client.Notifications](a)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "KIND", "TARGET", "ON", "ENDPOINTS", "STATE", "LAST TOLD", "LAST ERROR"}}
	for i := range shown.Channels {
		one := &shown.Channels[i]
		endpoints := "all"
		if len(one.EndpointIDs) > 0 {
			endpoints = strings.Join(one.EndpointIDs, ",")
		}
		rows = append(rows, []string{
			one.ID, one.Kind, printable.Text(one.Target), strings.Join(one.On, ","), endpoints, one.State, optionalTime(one.LastToldAt), text(one.LastError),
		})
	}
	if err := printable.Table(s.Stdout, rows); err != nil || shown.PortalURL == nil {
		return err
	}
	return s.line("messages link to " + printable.Text(*shown.PortalURL))
}

// NotificationsShowCommand shows the channels.
type NotificationsShowCommand struct {
	channelOwner `embed:""`
}

// Run shows them.
func (c *NotificationsShowCommand) Run(ctx context.Context, p Process) error {
	return with(p, c, func(s *session) error { return c.print(ctx, s, c.request(http.MethodGet, nil)) })
}

// NotificationsSetCommand replaces the channels.
type NotificationsSetCommand struct {
	channelOwner `embed:""`

	Email     []string `help:"Mail address to tell; may be repeated." placeholder:"ADDRESS"`
	On        []string `default:"failing,disabled,recovered" help:"What the addresses are told: failing, disabling_soon, disabled, recovered, dead_letters, backlog_expiring." placeholder:"NOTICE,..."` //nolint:lll // a struct tag cannot be wrapped
	PortalURL *string  `help:"A page of your own that messages link to." name:"portal-url" placeholder:"URL"`
	Data      source   `help:"The channels as the API takes them, such as those of chats, whose URLs are secrets: a JSON object, @file, or - for standard input. Flags are added to it." placeholder:"JSON"` //nolint:lll // a struct tag cannot be wrapped
}

// Run replaces them.
func (c *NotificationsSetCommand) Run(ctx context.Context, p Process) error {
	fields, err := c.Data.object(p, "--data")
	if err != nil {
		return err
	}
	var channels []json.RawMessage
	if given, ok := fields["channels"]; ok && json.Unmarshal(given, &channels) != nil {
		return usage("--data: channels must be an array")
	}
	if c.Data == "" && len(c.Email) == 0 {
		return usage("notifications set: say who is to be told, with --email or --data; --data '{\"channels\":[]}' removes all channels")
	}
	for _, address := range c.Email {
		channels = append(channels, marshal(client.NotificationChannelInput{Kind: "email", Target: address, On: slices.Clone(c.On)}))
	}
	if channels == nil {
		channels = []json.RawMessage{}
	}
	fields["channels"] = marshal(channels)
	set(fields, "portal_url", c.PortalURL)
	return with(p, c, func(s *session) error { return c.print(ctx, s, c.request(http.MethodPut, marshal(fields))) })
}
