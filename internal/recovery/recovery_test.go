package recovery

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

// bundle has all loops of a process. None runs.
type bundle struct {
	*engine.Engine

	held       *HeldEndpoints
	relay      *Relay
	reconciler *Reconciler
	release    *Release
	finder     *Finder
}

// parts are those of a bundle that matter in a test.
type parts struct {
	Client    client.Client
	Outbox    anOutbox
	Overdue   Overdue
	HeldStore aHeldStore
	Admission Admission
	TellHeld  func(webhook.EndpointID)
}

type anOutbox interface {
	Outbox
	engine.Rows
}

type aHeldStore interface {
	HeldStore
	HeldReader
}

func setup(t *testing.T, p parts) *bundle {
	t.Helper()
	if p.Outbox == nil {
		p.Outbox = &outbox{}
	}
	log := slog.New(slog.DiscardHandler)
	b := &bundle{Engine: engine.New(engine.Config{Client: p.Client, Rows: p.Outbox, Logger: log}), held: NewHeldEndpoints(log)}
	b.relay = NewRelay(RelayConfig{Engine: b.Engine, Outbox: p.Outbox, Replays: nothing{}, Logger: log})
	b.reconciler = NewReconciler(ReconcilerConfig{Engine: b.Engine, Overdue: p.Overdue, Deletions: nothing{}, Logger: log})
	b.release = NewRelease(ReleaseConfig{
		Engine: b.Engine, Held: b.held, Store: p.HeldStore, Admission: p.Admission, Requests: checker(nil), TellHeld: p.TellHeld, Logger: log,
	})
	b.finder = NewFinder(FinderConfig{Engine: b.Engine, Held: b.held, Store: p.HeldStore, Logger: log})
	return b
}

// nothing has no replays and no deletions.
type nothing struct{}

func (nothing) AdmitReplays(context.Context) error { return nil }

func (nothing) TakeReplays(context.Context, int) ([]webhook.Replay, error) { return nil, nil }
func (nothing) Deletions(context.Context, int) ([]string, error)           { return nil, nil }

// checker checks endpoints; nil finds all of them well.
type checker func(context.Context, webhook.EndpointID) error

func (c checker) CheckEndpoint(ctx context.Context, id webhook.EndpointID) error {
	if c == nil {
		return nil
	}
	return c(ctx, id)
}

// checks has the release check endpoints.
func (b *bundle) checks(check checker) { b.release.requests = check }

// run runs a loop until the bundle stops.
func (b *bundle) run(loop func(context.Context)) {
	b.Lifetime.Go(func() { loop(b.Lifetime.Stopping()) })
}

// relayOnce makes one round, of which a part may fail.
func (b *bundle) relayOnce() relayed {
	done, _ := b.relay.runOnce(b.Lifetime.Stopping())
	return done
}

func (b *bundle) findHeld() (found int, err error) { return b.finder.runOnce(b.Lifetime.Stopping()) }

func (b *bundle) releaseDue() { _, _ = b.release.releaseDue(b.Lifetime.Stopping()) }

func (b *bundle) releaseOf(endpoint webhook.EndpointID) {
	_, _ = b.release.releaseOf(b.Lifetime.Stopping(), endpoint)
}

// upTo lets an endpoint take so many.
func upTo(n int) func(webhook.EndpointID) int { return func(webhook.EndpointID) int { return n } }

// admissionStub is an admission of this process.
type admissionStub struct{ releasable func(webhook.EndpointID) int }

func (a admissionStub) Admits(webhook.EndpointID) bool       { return true }
func (a admissionStub) Releasable(id webhook.EndpointID) int { return a.releasable(id) }

// outbox is a store of which a part may be unreadable.
type outbox struct {
	starts   []webhook.Start
	commands error

	mu    sync.Mutex
	ended []webhook.DeliveryID
}

// TakeStarts assigns a workflow to the starts that have none.
func (o *outbox) TakeStarts(_ context.Context, call string, _ int) ([]webhook.Start, error) {
	starts := o.starts
	o.starts = nil
	for i := range starts {
		starts[i].Relayed++
		if starts[i].Assigned = starts[i].AssignedTo != ""; !starts[i].Assigned {
			starts[i].AssignedTo = webhook.SharedWorkflowPrefix + call + "/" + strconv.Itoa(i/webhook.MaxAssigned)
		}
	}
	return starts, nil
}

func (o *outbox) ReturnStarts(_ context.Context, starts []webhook.Start) error {
	o.starts = append(starts, o.starts...)
	return nil
}

func (o *outbox) DeleteRecorded(_ context.Context, ids []webhook.DeliveryID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, ids...)
	return nil
}

func (o *outbox) TakeCommands(context.Context, int) ([]webhook.CommandedDelivery, error) {
	return nil, o.commands
}

func leaveBehind(t *testing.T, store *stores.DB) error {
	t.Helper()
	start := enginetest.Accepted(1).Deliveries[0]
	_, err := store.Pool().Exec(t.Context(), `
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at)
		values ($1, $2, $3, $4, $5, 1, now(), now() + interval '1 hour', now() - interval '1 minute')`,
		start.DeliveryID, start.EventID, start.EndpointID, start.TenantID, start.EventType)
	return err
}
