package deliveries_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R9: a locked row holds up no other.
func TestALockedRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const n, locked = 40, 17
	items := make([]*deliveries.Recording, n)
	for i := range items {
		start := b.AcceptOne(t)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
		items[i] = &deliveries.Recording{Step: storetest.StepOf(start, 2, webhook.StateDelivered)}
	}
	release := b.LockRow(t, items[locked].Step.DeliveryID)
	defer release()
	for i, err := range storetest.HandInTogether(t, "record delivery", b.FlushRecords, items) {
		if i == locked {
			require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "%v", err)
			continue
		}
		require.NoError(t, err, "%d", i)
		require.Equal(t, webhook.StateDelivered, items[i].Status.State)
	}
}

// R9: a step or a claim with a value that PostgreSQL refuses harms no other of its flush.
func TestABadStepHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const n, bad, barred = 20, 7, 13
	_, err := b.Pool().Exec(t.Context(), `alter table deliveries add check (tenant_id <> 'barred')`)
	require.NoError(t, err)
	spoil := func(i int, ref *webhook.Ref, known *bool) {
		switch i {
		case bad:
			ref.EventType = "a\x00b" // class 22
		case barred:
			ref.TenantID, *known = "barred", true // class 23
		}
	}
	steps, claims := make([]*deliveries.Recording, n), make([]*deliveries.Claiming, n)
	for i := range n {
		steps[i] = &deliveries.Recording{Step: storetest.StepOf(b.AcceptOne(t), 1, webhook.StateDelivered)}
		claims[i] = &deliveries.Claiming{Claim: storetest.ClaimOf(b.AcceptOne(t), 0, "me", time.Minute)}
		spoil(i, &steps[i].Step.Ref, &steps[i].Step.Known)
		spoil(i, &claims[i].Claim.Ref, new(bool))
	}
	check := func(errs []error, written func(i int) bool) {
		for i, err := range errs {
			switch i {
			case bad:
				require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err), "%v", err)
			case barred:
				require.Equal(t, webhook.CodeInternal, webhook.CodeOf(err), "%v", err)
			default:
				require.NoError(t, err, "%d", i)
				require.True(t, written(i), "%d", i)
			}
		}
	}
	check(storetest.HandInTogether(t, "record delivery", b.FlushRecords, steps), func(i int) bool {
		return steps[i].Status.State == webhook.StateDelivered
	})
	check(storetest.HandInTogether(t, "claim attempt", b.FlushClaims, claims), func(i int) bool {
		return claims[i].Granted && claims[i].Payload.Bytes != nil
	})
	require.Equal(t, 2*(n-2), b.Count(t, "deliveries"))
}

// An item that is alone waits out what locks a whole table for a moment.
func TestALockedRowIsWaitedForAWhile(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	start := b.AcceptOne(t)
	_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
	require.NoError(t, err)
	release := b.LockRow(t, start.DeliveryID)
	flushes := 0
	w := postgres.NewWriter("record delivery", deliveries.RecordWeight, func(ctx context.Context, items []*deliveries.Recording) error {
		flushes++
		if flushes == 2 {
			release()
		}
		return b.FlushRecords(ctx, items)
	}, nil)
	defer w.Stop()
	require.NoError(t, w.Do(t.Context(), &deliveries.Recording{Step: storetest.StepOf(start, 2, webhook.StateDelivered)}))
	require.Equal(t, 2, flushes)
}

// A row that stays locked, as by a process that has stopped, costs the others one lock timeout, however often its delivery is written meanwhile.
// It is written when it is free.
func TestALockedRowCostsOthersOneWait(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(b *storetest.Bundle, start webhook.Start) error{
		"steps": func(b *storetest.Bundle, start webhook.Start) error {
			_, err := b.RecordStep(context.Background(), storetest.StepOf(start, 2, webhook.StateDelivered))
			return err
		},
		"claims": func(b *storetest.Bundle, start webhook.Start) error {
			_, err := b.Claim(context.Background(), storetest.ClaimOf(start, 1, "me", time.Minute))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			retrying := func() webhook.Start {
				start := b.AcceptOne(t)
				_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
				require.NoError(t, err)
				return start
			}
			locked, others := retrying(), make([]webhook.Start, 200)
			for i := range others {
				others[i] = retrying()
			}
			release := b.LockRow(t, locked.DeliveryID)
			written := make(chan struct{})
			go func() {
				defer close(written)
				for write(b, locked) != nil { // as a workflow does, but at once
				}
			}()
			const hold = 5 * time.Second
			var waited time.Duration // of the others, beyond what a write takes
			begun := time.Now()
			for _, start := range others {
				at := time.Now()
				require.NoError(t, write(b, start))
				if took := time.Since(at); took > hold/20 {
					waited += took
				}
				require.Less(t, waited, hold/4, "of %s", time.Since(begun))
				<-time.After(max(0, hold/time.Duration(len(others))-time.Since(at)))
			}
			select {
			case <-written:
				require.Fail(t, "the row is locked")
			default:
			}
			release()
			select {
			case <-written:
			case <-time.After(storetest.Eventually):
				require.Fail(t, "it is not written")
			}
		})
	}
}

// A release that stays locked, as by a process that has stopped, costs others one lock timeout, however many deliveries of its endpoint are held
// meanwhile. They are held when it is free.
func TestALockedReleaseCostsOthersOneWait(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	const holds, hold = 20, 4 * time.Second
	var held, others []webhook.Start
	for range holds {
		held, others = append(held, b.AcceptOne(t)), append(others, b.AcceptOne(t), b.AcceptOne(t))
	}
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `select from releases for update`)
	require.NoError(t, err)
	stored := make(chan struct{}, holds)
	for i, start := range held {
		go func() {
			<-time.After(time.Duration(i) * hold / holds / 2)
			step := storetest.StepOf(start, 1, webhook.StateHeld)
			step.WorkflowID, step.Reason = storetest.NoWorkflow, webhook.ReasonBacklog
			for {
				if _, err := b.RecordStep(context.Background(), step); err == nil {
					stored <- struct{}{}
					return
				}
			}
		}()
	}
	var waited time.Duration // of the others, beyond what a write takes
	for _, start := range others {
		at := time.Now()
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
		require.NoError(t, err)
		if took := time.Since(at); took > hold/20 {
			waited += took
		}
		<-time.After(max(0, hold/time.Duration(len(others))-time.Since(at)))
	}
	require.Less(t, waited, hold/3)
	require.Empty(t, stored, "the release is locked")
	require.NoError(t, tx.Commit(t.Context()))
	for range holds {
		select {
		case <-stored:
		case <-time.After(storetest.Eventually):
			require.Fail(t, "they are not held")
		}
	}
}
