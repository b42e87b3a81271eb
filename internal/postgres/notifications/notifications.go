// Package notifications stores whom people have asked to be told of changes of endpoints, what was told last, and what is to be told: mails wait in
// a table of their own, and what goes to a chat is an ordinary event for an internal endpoint.
package notifications

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// events stores events of Everpost's own.
type events interface {
	NoteBacklog(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, summary string) error
	PostTo(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, eventType string, payload []byte) error
}

// Config is what Notifications needs.
type Config struct {
	Endpoints      *endpoints.Endpoints
	Events         events
	OperatorTenant string       // has the endpoints of the installation's chats; "" for none
	RetryPolicy    retry.Policy // of the installation
	Sealer         postgres.Sealer
}

// Notifications stores notifications and their channels.
type Notifications struct {
	core *postgres.Core

	endpoints      *endpoints.Endpoints
	events         events
	operatorTenant string
	retryPolicy    retry.Policy // of the installation
	links          linkKey
}

// New makes a Notifications.
func New(s *postgres.Core, c Config) *Notifications {
	return &Notifications{
		core: s, endpoints: c.Endpoints, events: c.Events, operatorTenant: c.OperatorTenant, retryPolicy: c.RetryPolicy, links: linkKey{sealer: c.Sealer},
	}
}

// home is the tenant that has the endpoints of an owner's chats; "" for none. The owner "" is the installation.
func (s *Notifications) home(owner string) string {
	if owner == "" {
		return s.operatorTenant
	}
	return owner
}
