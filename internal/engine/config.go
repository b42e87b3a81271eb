package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Config is what an engine needs.
type Config struct {
	Client    client.Client
	Namespace string // of the client; defaults to the SDK's default
	Logger    *slog.Logger
	// Converter is the client's; defaults to the SDK's default.
	Converter converter.DataConverter
	// Rows are deleted when a start is answered. Nil in a process that may not read all tenants' deliveries: the relay of another one
	// deletes them.
	Rows Rows
	// MaxPerWorkflow is how many deliveries may share a workflow. Defaults to 100; with 1 none do.
	MaxPerWorkflow int
	// MaxEventIDs is the number of events by which a shared workflow can be found. Defaults to
	// workflows.MaxEventIDs; more needs a Temporal that accepts longer search attributes.
	MaxEventIDs int
	// KeepDeadLetters is how long a dead letter is kept. Defaults to 30 days.
	KeepDeadLetters time.Duration
	// LocalWorker says that a worker of this process, on the same client, runs workflows. It then gets the first task of a workflow with
	// the answer to its start. Temporal does not ask for the version of such a worker.
	LocalWorker bool
	// Tracer makes a span of each start; nil: there are none.
	Tracer *tracing.Tracer
	// Now is the database's clock, for deliver_at. Defaults to time.Now.
	Now func() time.Time
}

// Rows are the outbox rows of deliveries.
type Rows interface {
	// DeleteRecorded deletes the rows of deliveries that are recorded and whose workflow has been started.
	DeleteRecorded(ctx context.Context, ids []webhook.DeliveryID) error
}

func (c *Config) setDefaults() {
	c.Namespace, c.MaxPerWorkflow = cmp.Or(c.Namespace, client.DefaultNamespace), cmp.Or(c.MaxPerWorkflow, 100)
	c.MaxEventIDs, c.KeepDeadLetters = cmp.Or(c.MaxEventIDs, workflows.MaxEventIDs), cmp.Or(c.KeepDeadLetters, 30*24*time.Hour)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Converter == nil {
		c.Converter = converter.GetDefaultDataConverter()
	}
}
