package app

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/mailer"
	"github.com/everpost/everpost/internal/notifier"
	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

// startNotifier begins to tell people of changes of endpoints, in a process that works for all tenants.
func (a *App) startNotifier() error {
	if !a.overAll {
		return nil
	}
	c := &a.options.Config
	n := notifier.Config{
		Changes: a.store.Notifications, Looks: a.store.Notifications, Mails: a.store.Mails,
		Links: notify.Links{Name: c.ConsoleName, BaseURL: c.ConsoleURL},
		Explain: func(ctx context.Context, tenantID string, id webhook.EndpointID) (string, error) {
			h, err := a.health.Health(ctx, tenantID, id)
			return explain.Endpoint(&h, a.store.Now()).Summary, err
		},
		Metrics: a.metrics, Logger: a.log, Now: a.store.Now,
	}
	sender, err := newMailer(c, a.options.Version, a.roots)
	if err != nil {
		return err
	}
	if sender != nil {
		n.Sender = sender
	}
	running := notifier.New(n)
	running.Start(a.life)
	a.push(phaseNotifier, func(context.Context) { running.Stop() })
	return nil
}

// newMailer makes what sends mails; nil without a mail server.
func newMailer(c *config.Config, version string, roots *x509.CertPool) (*mailer.Mailer, error) {
	server, err := c.SMTP()
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_SMTP_URL: %w", err)
	}
	if server == nil {
		return nil, nil //nolint:nilnil // nil stands for no mail
	}
	return mailer.New(mailer.Config{
		Host: server.Host, Port: server.Port, Implicit: server.Implicit, Unencrypted: server.Unencrypted,
		User: server.User, Password: server.Password, From: server.From, RootCAs: roots, Version: version,
	}), nil
}
