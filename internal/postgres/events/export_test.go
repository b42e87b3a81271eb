// What the tests look into.

package events

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Events) FlushIntake(a0 context.Context, a1 []*intake) error { return s.flushIntake(a0, a1) }
func (s *Events) Match(a0 context.Context, a1 *intake) error         { return s.match(a0, a1) }

type Arrival = arrival

const DeliveriesPerEvent = deliveriesPerEvent

type Intake = intake

func (s *intake) Add(a0 webhook.NewEvent, a1 string) { s.add(a0, a1) }

type IntakeKey = intakeKey

var IntakeOf = intakeOf

const KeyExternalID = keyExternalID
const KeyIdempotency = keyIdempotency

var KeysOf = keysOf

func (s *keysUnderWay) Enter(a0 string, a1 []intakeKey) *intakeKey { return s.enter(a0, a1) }
func (s *keysUnderWay) Leave(a0 string, a1 []intakeKey)            { s.leave(a0, a1) }

var ListEvents = listEvents

const MaxBatchDeliveries = maxBatchDeliveries
const MaxExpected = maxExpected

var ReadKeys = readKeys
var WriteAtOnce = writeAtOnce
var WriteChecked = writeChecked
