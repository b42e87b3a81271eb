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

	faults     *Faults
	relay      *Relay
	reconciler *Reconciler
	checks     *Checks
	release    *Release
	expiry     *Expiry
}

// parts are those of a bundle that matter in a test.
type parts struct {
	Client    client.Client
	Outbox    anOutbox
	Overdue   Overdue
	Releases  Releases
	Expired   Expired
	Admission Admission
	Requests  Requests
}

type anOutbox interface {
	Outbox
	engine.Rows
}

func setup(t *testing.T, p parts) *bundle {
	t.Helper()
	if p.Outbox == nil {
		p.Outbox = &outbox{}
	}
	log := slog.New(slog.DiscardHandler)
	b := &bundle{Engine: engine.New(engine.Config{Client: p.Client, Rows: p.Outbox, Logger: log}), faults: NewFaults(log)}
	b.relay = NewRelay(RelayConfig{Engine: b.Engine, Outbox: p.Outbox, Replays: nothing{}, Logger: log})
	b.reconciler = NewReconciler(ReconcilerConfig{Engine: b.Engine, Overdue: p.Overdue, Deletions: nothing{}, Logger: log})
	b.checks, b.expiry = NewChecks(b.faults, p.Requests, log), NewExpiry(b.Engine, p.Expired, log)
	b.release = NewRelease(ReleaseConfig{Engine: b.Engine, Faults: b.faults, Store: p.Releases, Admission: p.Admission, Intake: atOnce{b.Engine}, Logger: log})
	return b
}

// atOnce starts what was released.
type atOnce struct{ *engine.Engine }

func (i atOnce) Released(all []webhook.Start) { i.Starts.Assigned(all) }

// nothing has no replays and no deletions.
type nothing struct{}

func (nothing) AdmitReplays(context.Context) error { return nil }

func (nothing) TakeReplays(context.Context, int) ([]webhook.Replay, error) { return nil, nil }
func (nothing) Deletions(context.Context, int) ([]string, error)           { return nil, nil }

// checker checks endpoints.
type checker func(context.Context, webhook.EndpointID) error

func (c checker) CheckEndpoint(ctx context.Context, id webhook.EndpointID) error { return c(ctx, id) }

// run runs a loop until the bundle stops.
func (b *bundle) run(loop func(context.Context)) {
	b.Lifetime.Go(func() { loop(b.Lifetime.Stopping()) })
}

// relayOnce makes one round, of which a part may fail.
func (b *bundle) relayOnce() relayed {
	done, _ := b.relay.runOnce(b.Lifetime.Stopping())
	return done
}

// releaseOnce makes a round, of which a part may fail.
func (b *bundle) releaseOnce() int {
	n, _ := b.release.runOnce(b.Lifetime.Stopping())
	return n
}

// upTo lets an endpoint take so many.
func upTo(n int) func(webhook.EndpointID) int { return func(webhook.EndpointID) int { return n } }

// admissionStub is an admission of this process.
type admissionStub struct{ releasable func(webhook.EndpointID) int }

func (a admissionStub) OwnLanes() []int                      { return make([]int, 1) }
func (a admissionStub) Releasable(id webhook.EndpointID) int { return a.releasable(id) }
func (a admissionStub) UsualRate(webhook.EndpointID) float64 { return 0 }

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
