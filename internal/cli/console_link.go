package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/everpost/everpost/client"
)

// ConsoleLinkCommand makes a link that logs in to the console, or one to a tenant's portal.
type ConsoleLinkCommand struct {
	remote `embed:""`

	Portal       string   `enum:",view,manage" default:"" help:"Make a link to the tenant's portal instead: to look (view), or also to change things (manage)." placeholder:"view|manage"` //nolint:lll // a struct tag cannot be wrapped
	Token        bool     `help:"With --portal: make a portal token, with which a page of yours calls the API, instead of a link."`
	Capabilities []string `help:"What the portal link permits besides: secrets, filters, replay, none. Default: all with manage." placeholder:"NAME,..."`
	ExpiresIn    string   `help:"How long the portal link or token can be used, 1m to 1h; 15m without it, and 1h for a token." placeholder:"DURATION"`
	Lang         string   `help:"Language of the portal, such as de; that of the browser without it." placeholder:"TAG"`
	Theme        string   `enum:",auto,light,dark" default:"" help:"Theme of the portal." placeholder:"auto|light|dark"`
	Embed        bool     `help:"Show the portal without a header, for a frame."`
	ReturnURL    string   `help:"Where the portal leads back to." name:"return-url" placeholder:"URL"`
	RefreshURL   string   `help:"Where there is a new link when the portal's session has ended." name:"refresh-url" placeholder:"URL"`
}

// Help returns the help that the flags do not contain.
func (*ConsoleLinkCommand) Help() string {
	return "Needs an operator key. The link logs in once, within the hour, with that key. Who has it may do what the key may, so keep it out of logs. " +
		"With --portal it needs --tenant and an admin or operator key, and the link opens that tenant's portal, for a customer. " +
		"With --token, too, it is a token with which a page of yours calls the API from the customer's browser."
}

// Run makes the link and prints it.
func (c *ConsoleLinkCommand) Run(ctx context.Context, p Process) error {
	if c.Token && c.Portal == "" {
		return usage("--token: needs --portal view or --portal manage")
	}
	if c.Portal == "" {
		return with(p, &c.connection, func(s *session) error {
			return s.record(ctx, request{method: http.MethodPost, path: []string{"console-links"}, ofAll: true})
		})
	}
	in := client.ConsoleLinkInput{
		Scope: c.Portal, ExpiresIn: c.ExpiresIn, Capabilities: c.Capabilities, Lang: c.Lang, Theme: c.Theme, Embed: c.Embed,
		ReturnURL: c.ReturnURL, RefreshURL: c.RefreshURL,
	}
	if c.Token {
		in.Kind = client.TokenKind
	}
	if len(in.Capabilities) == 1 && in.Capabilities[0] == "none" {
		in.Capabilities = []string{}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the link: %w", err)
	}
	return with(p, c, func(s *session) error {
		return s.record(ctx, request{method: http.MethodPost, path: []string{"console-links"}, body: body})
	})
}
