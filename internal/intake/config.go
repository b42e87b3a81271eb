package intake

import (
	"context"
	"log/slog"
	"time"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

// Config is what an intake needs.
type Config struct {
	Engine *engine.Engine
	Logger *slog.Logger
	// Outbox is nil in a process that may not write all tenants' deliveries.
	Outbox Outbox

	// Requests is this process's worker; nil without one, as Fresh, Admission and Faults.
	Requests Requests
	// Fresh gets the payloads of new events, for the worker.
	Fresh     *Fresh
	Admission Admission
	Faults    Faults
	// Forwarder forwards new deliveries to the processes that admit the requests to their endpoints; nil if this process shares no limits.
	Forwarder Forwarder

	// StartLoops is the number of start loops. Defaults to 1: then deliveries that arrive during a
	// start share the next one.
	StartLoops int
	// QueueLength is how many deliveries may wait for a start before ReserveRoom waits. Defaults to 1,000.
	// A single tenant gets half of it, several get less each: see fair.NewDynamic.
	QueueLength int
	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time
}

// Outbox is what an intake leaves to other processes.
type Outbox interface {
	// MakeDue lets the relay of any process take deliveries at once.
	MakeDue(ctx context.Context, ids []webhook.DeliveryID) error
}

// Requests is what the intake needs of this process's worker.
type Requests interface {
	// SendEagerly sends the first request of a delivery before its workflow is started, if it can be
	// sent at once. It must not block.
	SendEagerly(in activities.AttemptInput, start activities.EagerStart) bool
	// KnowsEndpoint reports whether an endpoint is in memory, which SendEagerly needs. It must not block.
	KnowsEndpoint(id webhook.EndpointID) bool
	// ReadEndpoint brings an endpoint into memory. If that fails, the first attempt finds out why.
	ReadEndpoint(ctx context.Context, id webhook.EndpointID)
}

// Admission is what the intake uses of an admission.Controller, or of a fleet.Fleet.
type Admission interface {
	// LikelySlow reports whether an attempt is likely to take long or to be deferred.
	LikelySlow(id webhook.EndpointID) bool
	// Forecast predicts the admission of a new delivery.
	Forecast(id webhook.EndpointID) admission.Forecast
	// Admits reports whether this process admits the requests to an endpoint. If not, another process does.
	Admits(id webhook.EndpointID) bool
}

// Faults knows the endpoints that an internal fault keeps from being sent to.
type Faults interface {
	IsFaulty(id webhook.EndpointID) bool
}

// Forwarder forwards new deliveries to the processes that admit the requests to their endpoints: *fleet.Fleet.
type Forwarder interface {
	// Forward does not block. It calls done once for each delivery.
	Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult))
}
