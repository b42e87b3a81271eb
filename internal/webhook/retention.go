package webhook

import "time"

// Retention is how long parts of a tenant's deliveries are kept after their end. A zero field means as long as the
// installation keeps them; so does one that is longer than that.
type Retention struct {
	Payloads   time.Duration `json:"payloads,omitempty"`   // of events all of whose deliveries have ended
	Attempts   time.Duration `json:"attempts,omitempty"`   // of ended deliveries
	Deliveries time.Duration `json:"deliveries,omitempty"` // ended ones, and events without others
}

// The shortest retentions. An event is kept for as long as a repeated Idempotency-Key gets its first answer.
const (
	MinRetention         = time.Hour
	MinDeliveryRetention = IdempotencyKeysKept
)

// IdempotencyKeysKept is how long an Idempotency-Key is kept.
const IdempotencyKeysKept = 24 * time.Hour
