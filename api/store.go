package api

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// The interfaces of the store that the API needs. A method returns a *webhook.Error if the caller
// of the API can act on the failure; this includes CodeUnavailable while PostgreSQL is
// unavailable. A method with an Actor writes the audit log in the same transaction.

// Tenants stores tenants.
type Tenants interface {
	PutTenant(ctx context.Context, by webhook.Actor, t webhook.Tenant) (stored webhook.Tenant, created bool, err error)
	Tenant(ctx context.Context, id string) (webhook.Tenant, error)
	// ListTenants lists tenants whose id begins with the prefix, by id; after is the last id of the previous page, "" for the first page.
	ListTenants(ctx context.Context, prefix string, limit int, after string) ([]webhook.Tenant, error)
	DeleteTenant(ctx context.Context, by webhook.Actor, id string) error
}

// TenantUpdates changes tenants.
type TenantUpdates interface {
	// UpdateTenant reads the tenant under a lock, calls change and stores the result. It
	// returns an error of change unchanged.
	UpdateTenant(ctx context.Context, by webhook.Actor, id string, change func(*webhook.Tenant) error) (webhook.Tenant, error)
}

// TenantDeletions deletes tenants with everything that is stored of them.
type TenantDeletions interface {
	// BeginDeletion deletes a tenant, and begins to remove what is stored of it. CodeNotFound: there is no such
	// tenant, and nothing of a deleted one.
	BeginDeletion(ctx context.Context, by webhook.Actor, id string) (webhook.TenantDeletion, error)
	// Deletion is the progress; CodeNotFound if no deletion is under way.
	Deletion(ctx context.Context, id string) (webhook.TenantDeletion, error)
}

// Keys stores API keys.
type Keys interface {
	KeyChecks

	CreateKey(ctx context.Context, by webhook.Actor, k webhook.Key) error
	ListKeys(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Key, error)
	RevokeKey(ctx context.Context, by webhook.Actor, tenantID string, id webhook.KeyID) error
}

// KeyChecks checks API keys. It caches keys and takes constant time for a known id. It returns
// CodeUnauthenticated for every key that is not valid.
type KeyChecks interface {
	Authenticate(ctx context.Context, id webhook.KeyID, sha256 [32]byte) (webhook.Key, error)
	// Check is Authenticate without a use of the key, which last_used_at shows.
	Check(ctx context.Context, id webhook.KeyID, sha256 [32]byte) (webhook.Key, error)
}

// Endpoints stores endpoints and their secrets, which it encrypts.
type Endpoints interface {
	CreateEndpoint(ctx context.Context, by webhook.Actor, e webhook.Endpoint, secret string) (webhook.Endpoint, error)
	Endpoint(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error)
	ListEndpoints(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Endpoint, error)
	// UpdateEndpoint reads the endpoint under a lock, calls change and stores the result. It
	// returns an error of change unchanged. If the signature scheme needs a secret of
	// another kind, the endpoint gets a new one.
	UpdateEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID,
		change func(*webhook.Endpoint) error) (webhook.Endpoint, error)
}

// EndpointSecrets reads and rotates the secrets of endpoints, and deletes endpoints.
type EndpointSecrets interface {
	// RotateSecret sets a new secret of the endpoint: the caller's or a generated one.
	// CodeInvalid: the caller's does not fit the signature scheme; CodeConflict: too many
	// secrets are in use.
	RotateSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, r webhook.Rotation) (webhook.Rotated, error)
	// EndpointSecret returns the newest signing secret (whsec_… or whsk_…).
	EndpointSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (string, error)
	// DeleteEndpoint deletes the endpoint and requests the cancellation of its open deliveries.
	DeleteEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) error
}

// Intake stores events.
type Intake interface {
	// Accept stores an event and its deliveries; they are committed when it returns without an
	// error. CodeNotFound: no such tenant; CodeInvalid: an unknown endpoint id; CodeMismatch and
	// CodeConflict: see the idempotency rules.
	Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error)
	// AcceptBatch stores all events of a batch or none, and returns a result for each. Its
	// errors are those of Accept and name the event; CodeTooLarge: too many deliveries.
	AcceptBatch(ctx context.Context, b webhook.NewBatch) ([]webhook.Accepted, error)
}

// EventLists reads lists of events.
type EventLists interface {
	ListEvents(ctx context.Context, tenantID string, f webhook.EventFilter, p webhook.Page) (found []webhook.Event, searched [16]byte, err error)
	// Outcomes counts the deliveries of events by where they stand.
	Outcomes(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.EventOutcomes, error)
	// ExternalIDs are those of events that have one, in one read.
	ExternalIDs(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]string, error)
}

// Events stores and reads events.
type Events interface {
	Intake
	EventLists
	Event(ctx context.Context, tenantID string, id webhook.EventID) (webhook.Event, []webhook.Delivery, error)
	Payload(ctx context.Context, tenantID string, id webhook.EventID) ([]byte, error)
}

// PayloadErasures erases payloads, and reads which were removed.
type PayloadErasures interface {
	// ErasePayloads removes the payloads of the named events, all or none. It returns an entry for each, in
	// order, and the deliveries that it cancels. CodeNotFound: an unknown id; CodeConflict: a delivery is open
	// and may not be cancelled, or is being sent.
	ErasePayloads(ctx context.Context, by webhook.Actor, tenantID string, e webhook.PayloadErasure) (
		[]webhook.ErasedPayload, []webhook.CommandedDelivery, error)
	// RemovedPayloads returns those of a tenant's events whose payload was removed, in one read.
	RemovedPayloads(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.PayloadRemoval, error)
}

// AttemptLists reads attempts.
type AttemptLists interface {
	// Attempts returns those of a delivery, the newest first; afterNumber 0 starts at the newest.
	Attempts(ctx context.Context, tenantID string, id webhook.DeliveryID, limit, afterNumber int) ([]webhook.Attempt, error)
	// ListAttempts returns those of the newest delivery first, after one of them. If searched is not zero, the list goes on after that delivery.
	ListAttempts(ctx context.Context, tenantID string, f webhook.AttemptFilter, limit int, after webhook.DeliveryAttempt) (
		found []webhook.DeliveryAttempt, searched webhook.DeliveryID, err error)
}

// DeliveryCommands stores commands to deliveries.
type DeliveryCommands interface {
	// CancelEvent cancels the open deliveries of an event and returns them, with the commands' ids for the signals. CodeNotFound: there is no
	// such event.
	CancelEvent(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EventID, reason string) ([]webhook.CommandedDelivery, error)
	// Command stores a command with the delivery. It returns CodeConflict with the State if
	// that does not accept the command. The returned delivery is the one after the command,
	// with the command's id for the signal.
	Command(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID,
		c webhook.PendingCommand) (webhook.Delivery, webhook.PendingCommand, error)
}

// Deliveries reads deliveries and stores commands to them.
type Deliveries interface {
	AttemptLists
	DeliveryCommands
	Delivery(ctx context.Context, tenantID string, id webhook.DeliveryID) (webhook.Delivery, error)
	ListDeliveries(ctx context.Context, tenantID string, f webhook.DeliveryFilter, p webhook.Page) (found []webhook.Delivery, searched [16]byte, err error)
}

// DeadLetterGroups groups dead letters.
type DeadLetterGroups interface {
	// GroupDeadLetters groups a tenant's newest dead letters by endpoint, reason and last status.
	GroupDeadLetters(ctx context.Context, tenantID string, f webhook.DeliveryFilter) (webhook.DeadLetterGroups, error)
}

// Starter passes stored deliveries, commands and replays to Temporal. Only ReserveRoom returns an
// error: what Temporal cannot take now stays in the store and is passed later.
type Starter interface {
	// ReserveRoom waits up to 1 s for room in the queue for n events of the tenant. It returns
	// CodeUnavailable if there is none. The caller must call release once, after Accepted.
	ReserveRoom(ctx context.Context, tenantID string, n int) (release func(), err error)
	Accepted(all ...webhook.Accepted)
	// Commanded passes a command that has been stored to the delivery's workflow, without waiting for the signal.
	Commanded(ctx context.Context, d webhook.Delivery, c webhook.PendingCommand)
	// WakeReplay starts a replay's workflow, or signals its pending command.
	WakeReplay(ctx context.Context, r webhook.Replay)
}

// URLs checks the URL of an endpoint.
type URLs interface {
	// CheckURL returns all that is wrong with it, each a phrase that follows the field's name; none: requests may be sent to it.
	CheckURL(raw string) []string
}
