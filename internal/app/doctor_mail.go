package app

import (
	"context"
	"net"
	"strconv"
)

// mail logs in to the mail server, and sends nothing.
func (c *diagnosis) mail(ctx context.Context) Finding {
	const remedy = "check EVERPOST_SMTP_URL: docs/notifications.md#the-mail-server"
	roots, err := c.Config.RootCAs()
	if err != nil {
		return problem("EVERPOST_CA_FILE: "+oneLine(err), remedy)
	}
	sender, err := newMailer(&c.Config, c.Version, roots)
	switch {
	case err != nil:
		return problem(oneLine(err), remedy)
	case sender == nil:
		return skipped("no mail is sent: EVERPOST_SMTP_URL is not set")
	}
	if err := sender.Check(ctx); err != nil {
		return problem(oneLine(err), remedy)
	}
	server, err := c.Config.SMTP()
	if err != nil {
		return problem(oneLine(err), remedy)
	}
	return ok("%s can be used", net.JoinHostPort(server.Host, strconv.Itoa(server.Port)))
}
