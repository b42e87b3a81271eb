package deliveries

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// stepRow is a step as a row of upsertStep.
type stepRow struct {
	*webhook.Step

	now time.Time
}

//nolint:gochecknoglobals // a table that Go cannot write as a constant
var stepRows = postgres.RowsOf[stepRow]{
	postgres.Whole("id uuid", func(s stepRow) [16]byte { return s.DeliveryID }),
	postgres.Each("event uuid", func(s stepRow) [16]byte { return s.EventID }),
	postgres.Each("endpoint uuid", func(s stepRow) [16]byte { return s.EndpointID }),
	postgres.Each("tenant text", func(s stepRow) string { return s.TenantID }),
	postgres.Each("type text", func(s stepRow) string { return s.EventType }),
	postgres.Each("created timestamptz", func(s stepRow) time.Time { return s.EventID.Time() }),
	postgres.Each("run int", func(s stepRow) int { return s.Run }),
	postgres.Each("seq int", func(s stepRow) int { return s.Seq }),
	postgres.Each("state smallint", func(s stepRow) int16 { return int16(s.State) }),
	postgres.Each("reason text", func(s stepRow) string { return s.Reason }),
	postgres.Each("attempts int", func(s stepRow) int { return s.Attempts }),
	postgres.Each("run_attempts int", func(s stepRow) int { return s.RunAttempts }),
	postgres.Each("ambiguous int", func(s stepRow) int { return s.Ambiguous }),
	postgres.Each("delay bigint", func(s stepRow) int64 { return int64(s.Delay) }),
	postgres.EachOptional("due timestamptz", func(s stepRow) *time.Time { return postgres.Optional(s.DueAt) }),
	postgres.Each("give_up timestamptz", func(s stepRow) time.Time { return s.GiveUpAt }),
	postgres.EachOptional("held timestamptz", whileHeld(func(p *webhook.Progress) time.Time { return p.HeldAt })),
	postgres.EachOptional("held_for bigint", func(s stepRow) *int64 { return heldFor(s.HeldFor) }),
	postgres.EachOptional("held_until timestamptz", whileHeld(func(p *webhook.Progress) time.Time { return p.HeldUntil })),
	postgres.EachOptional("completed timestamptz", stepRow.completedAt),
	postgres.Each("last_error text", func(s stepRow) string { return s.LastError }),
	postgres.Each("workflow text", func(s stepRow) string { return s.WorkflowID }),
	postgres.EachOptional("l_decision smallint", ofAttempt(func(a *webhook.Attempt) *int16 { return new(int16(a.Outcome.Decision)) })),
	postgres.EachOptional("l_reason text", ofAttempt(func(a *webhook.Attempt) *string { return (*string)(&a.Outcome.Reason) })),
	postgres.EachOptional("l_status int", ofAttempt(func(a *webhook.Attempt) *int { return &a.Outcome.Status })),
	postgres.EachOptional("l_latency bigint", ofAttempt(func(a *webhook.Attempt) *int64 { return new(a.Latency.Microseconds()) })),
	postgres.EachOptional("l_at timestamptz", ofAttempt(func(a *webhook.Attempt) *time.Time { return new(a.StartedAt.Add(a.Latency)) })),
	postgres.EachOptional("l_retry_after bigint", ofAttempt(func(a *webhook.Attempt) *int64 { return (*int64)(&a.Outcome.RetryAfter) })),
	postgres.Each("command_done bigint", func(s stepRow) int64 { return s.CommandDone }),
	postgres.Each("claimant uuid", stepRow.claimant),
	postgres.EachOptional("claimant_until timestamptz", stepRow.claimantUntil),
}

// ofAttempt returns a value of the step's attempt, null without an attempt.
func ofAttempt[V any](value func(*webhook.Attempt) *V) func(stepRow) *V {
	return func(s stepRow) *V {
		if s.Attempt == nil {
			return nil
		}
		return value(s.Attempt)
	}
}

// heldFor is a duration as it is stored: null for none, which takes no room in a row.
func heldFor(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	return (*int64)(&d)
}

// whileHeld returns a time of a held delivery, null for any other.
func whileHeld(at func(*webhook.Progress) time.Time) func(stepRow) *time.Time {
	return func(s stepRow) *time.Time {
		if s.State != webhook.StateHeld {
			return nil
		}
		return postgres.Optional(at(&s.Progress))
	}
}

// completedAt is when the delivery ended: with the attempt, or now.
func (s stepRow) completedAt() *time.Time {
	if s.State.Open() {
		return nil
	}
	if s.Attempt != nil {
		return new(s.Attempt.StartedAt.Add(s.Attempt.Latency))
	}
	return &s.now
}

// claimant is the process that writes a step which waits for the claims of others. In a new row it has a
// claim that has ended.
func (s stepRow) claimant() pgtype.UUID {
	if !waitsForClaim(s.Step) {
		return pgtype.UUID{}
	}
	return pgtype.UUID{Bytes: claimantID(s.Claimant), Valid: true}
}

func (s stepRow) claimantUntil() *time.Time {
	if !waitsForClaim(s.Step) {
		return nil
	}
	return &time.Time{}
}
