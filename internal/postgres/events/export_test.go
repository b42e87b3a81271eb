// Names for the tests, which are in a package of their own.

package events

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Events) FlushIntake(ctx context.Context, items []*intake) error {
	return s.flushIntake(ctx, items)
}
func (s *Events) Match(ctx context.Context, in *intake) error { return s.match(ctx, in) }

type Arrival = arrival

const DeliveriesPerEvent = deliveriesPerEvent

type Intake = intake

func (s *intake) Add(e webhook.NewEvent, key string) { s.add(e, key) }

type IntakeKey = intakeKey

var IntakeOf = intakeOf

const KeyExternalID = keyExternalID
const KeyIdempotency = keyIdempotency

var KeysOf = keysOf

func (s *keysUnderWay) Enter(tenantID string, keys []intakeKey) *intakeKey {
	return s.enter(tenantID, keys)
}
func (s *keysUnderWay) Leave(tenantID string, keys []intakeKey) { s.leave(tenantID, keys) }

var ListEvents = listEvents

const MaxBatchDeliveries = maxBatchDeliveries
const MaxExpected = maxExpected

var ReadKeys = readKeys
