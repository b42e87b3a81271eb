package api

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// The API's needs of the record, in small pieces. Every method returns a
// *webhook.Error for what a caller can do something about, among them
// CodeUnavailable while PostgreSQL is away. Writes that take an Actor write the
// audit log in the same transaction.

// Tenants stores tenants.
type Tenants interface {
	PutTenant(ctx context.Context, by webhook.Actor, t webhook.Tenant) (stored webhook.Tenant, created bool, err error)
	Tenant(ctx context.Context, id string) (webhook.Tenant, error)
	// ListTenants is ordered by id; after is the last id of the page before, "" for the first page.
	ListTenants(ctx context.Context, limit int, after string) ([]webhook.Tenant, error)
	DeleteTenant(ctx context.Context, by webhook.Actor, id string) error
}

// TenantUpdates changes tenants.
type TenantUpdates interface {
	// UpdateTenant reads the tenant under a lock, lets change edit it and writes it back;
	// an error of change is returned as it is.
	UpdateTenant(ctx context.Context, by webhook.Actor, id string, change func(*webhook.Tenant) error) (webhook.Tenant, error)
}

// Keys stores API keys. Authenticate is cached and constant in time for a known
// id; CodeUnauthenticated for everything that is not a living key.
type Keys interface {
	CreateKey(ctx context.Context, by webhook.Actor, k webhook.Key) error
	ListKeys(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Key, error)
	RevokeKey(ctx context.Context, by webhook.Actor, tenantID string, id webhook.KeyID) error
	Authenticate(ctx context.Context, id webhook.KeyID, sha256 [32]byte) (webhook.Key, error)
}

// Endpoints stores endpoints and their secrets, the latter encrypted.
type Endpoints interface {
	CreateEndpoint(ctx context.Context, by webhook.Actor, e webhook.Endpoint, secret string) (webhook.Endpoint, error)
	Endpoint(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error)
	ListEndpoints(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Endpoint, error)
	// UpdateEndpoint reads the endpoint under a lock, lets change edit it and writes
	// it back; an error of change is returned as it is. An endpoint whose signature scheme
	// needs a secret of another kind then gets one.
	UpdateEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID,
		change func(*webhook.Endpoint) error) (webhook.Endpoint, error)
}

// EndpointSecrets reads, rotates and removes what belongs to an endpoint.
type EndpointSecrets interface {
	// RotateSecret gives the endpoint a new secret, and makes one unless the caller has.
	// CodeInvalid: the caller's does not fit the signature scheme; CodeConflict: too many
	// are in use.
	RotateSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, r webhook.Rotation) (webhook.Rotated, error)
	// EndpointSecret is the newest signing secret (whsec_… or whsk_…).
	EndpointSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (string, error)
	// DeleteEndpoint ends the endpoint and asks its open deliveries to be cancelled.
	DeleteEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) error
}

// Intake takes events.
type Intake interface {
	// Accept stores an event and its deliveries; when it returns without an error
	// they are committed. CodeNotFound: no such tenant; CodeInvalid: an unknown
	// endpoint id; CodeMismatch and CodeConflict: see the idempotency rules.
	Accept(ctx context.Context, e webhook.NewEvent) (webhook.Accepted, error)
	// AcceptBatch stores all of a batch's events or none, and answers for each. Its
	// errors are Accept's and say which event; CodeTooLarge: too many deliveries.
	AcceptBatch(ctx context.Context, b webhook.NewBatch) ([]webhook.Accepted, error)
}

// Events takes and reads events.
type Events interface {
	Intake
	Event(ctx context.Context, tenantID string, id webhook.EventID) (webhook.Event, []webhook.Delivery, error)
	Payload(ctx context.Context, tenantID string, id webhook.EventID) ([]byte, error)
	ListEvents(ctx context.Context, tenantID string, f webhook.EventFilter, p webhook.Page) ([]webhook.Event, error)
}

// Deliveries reads deliveries and stores what is asked of them.
type Deliveries interface {
	Delivery(ctx context.Context, tenantID string, id webhook.DeliveryID) (webhook.Delivery, error)
	ListDeliveries(ctx context.Context, tenantID string, f webhook.DeliveryFilter, p webhook.Page) ([]webhook.Delivery, error)
	// Attempts are newest first; afterNumber 0 starts at the newest.
	Attempts(ctx context.Context, tenantID string, id webhook.DeliveryID, limit, afterNumber int) ([]webhook.Attempt, error)
	// Command stores a command with the delivery; CodeConflict with the State when
	// it makes no sense there. The delivery is returned as it stood after it, with
	// the command's id, for the signal that follows.
	Command(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID,
		c webhook.PendingCommand) (webhook.Delivery, webhook.PendingCommand, error)
}

// Dispatcher carries what was stored to the engine. But for Reserve nothing
// reports an error: what cannot be carried now stays in the record and is carried
// later.
type Dispatcher interface {
	// Reserve waits up to 1 s for room in the queue for n events of the tenant and takes
	// it; CodeUnavailable when there is none. The caller must call release once, after Accepted.
	Reserve(ctx context.Context, tenantID string, n int) (release func(), err error)
	Accepted(all ...webhook.Accepted)
	Signal(ctx context.Context, d webhook.Delivery, c webhook.PendingCommand)
	// WakeReplay starts a replay's workflow, or tells it what was asked of the replay.
	WakeReplay(ctx context.Context, r webhook.Replay)
}

// URLs says whether a URL may be an endpoint's; the error is a phrase for people
// that is shown after the field's name, or several, joined, if more than one thing is wrong.
type URLs interface {
	CheckURL(raw string) error
}
