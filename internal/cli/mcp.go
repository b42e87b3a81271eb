package cli

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/mcpserver"
)

// MCPCommand serves agents.
type MCPCommand struct {
	access `embed:""`

	Tenant string       `env:"EVERPOST_TENANT" help:"The only tenant that is shown. Without one, the agent names a tenant in each call." placeholder:"ID"`
	Listen string       `help:"Serve streamable HTTP at this address, at /mcp, instead of standard input and output." placeholder:"HOST:PORT"`
	Hosts  config.Hosts `help:"Names under which --listen is served, besides addresses and localhost, separated by commas; '*.example.com' for all below it, 'any' for all." placeholder:"NAME,...|any"` //nolint:lll // a struct tag cannot be wrapped
	Write  bool         `help:"Also offer tools that change something: retry, replay, cancel, pause, resume, close a circuit. Each asks for a confirmation."`
}

// Help returns the help that the flags do not contain.
func (*MCPCommand) Help() string {
	return "Offers the API to an agent as tools of the Model Context Protocol: list and explain endpoints, deliveries, dead letters and replays. " +
		"Nothing can be changed without --write.\n\n" +
		"An agent starts it as a command and talks to it over standard input and output; it uses the key in --key or $EVERPOST_KEY, " +
		"or, for one --tenant on this machine, the operator key in the data directory. " +
		"With --listen each client sends an API key of its own as bearer token, and the key of this command is not used."
}

// Run serves until the input ends or a signal comes.
func (c *MCPCommand) Run(ctx context.Context, p Process) error {
	base, err := c.base()
	if err != nil {
		return err
	}
	key := ""
	if c.Listen == "" {
		var source string
		if key, source, err = c.findKey(base); err != nil {
			return err
		}
		if source != "" && key != "" && c.Tenant == "" {
			return usage("--key: is required, here or as $EVERPOST_KEY, or --tenant: an agent does not get the operator's key for all tenants by itself")
		}
	}
	api, err := newClient(base, key, "everpost-mcp/"+p.Version)
	if err != nil {
		return err
	}
	defer api.Close()
	server, err := mcpserver.New(mcpserver.Config{Client: api, Version: p.Version, Tenant: c.Tenant, Write: c.Write, Hosts: mcpserver.Hosts(c.Hosts)})
	if err != nil {
		return usagef("--%w", err)
	}
	if c.Listen == "" {
		in, ok := p.stdin().(io.ReadCloser)
		if !ok {
			in = io.NopCloser(p.stdin())
		}
		return server.ServeStdio(ctx, in, p.Stdout)
	}
	return c.serveHTTP(ctx, p, server)
}

func (c *MCPCommand) serveHTTP(ctx context.Context, p Process, server *mcpserver.Server) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return usagef("--listen: %s cannot be listened on: %w", c.Listen, cause(err))
	}
	if address, ok := l.Addr().(*net.TCPAddr); ok && !address.IP.IsLoopback() {
		_, _ = fmt.Fprintln(p.Stderr, "clients send their keys without encryption: put a proxy with TLS before this address")
	}
	if _, err := fmt.Fprintln(p.Stdout, "ready mcp=http://"+l.Addr().String()+mcpserver.Path); err != nil {
		_ = l.Close()
		return err
	}
	return server.ServeHTTP(ctx, l)
}
